"""List the functions and the kinds of syntax that a statement may contain."""

from __future__ import annotations

from sqlglot import exp

AGGREGATES = frozenset({"avg", "count", "group_concat", "max", "min", "string_agg", "sum", "total"})
WINDOW_FUNCTIONS = frozenset(
    {
        *("cume_dist", "dense_rank", "first_value", "lag", "last_value", "lead", "nth_value", "ntile"),
        *("percent_rank", "rank", "row_number"),
    }
)
# Left out on purpose: whatever loads code, reads files or versions, makes large values from small ones (printf,
# zeroblob, hex, char, json_*), or differs from run to run (random).
SCALARS = frozenset(
    {
        *("coalesce", "glob", "ifnull", "iif", "instr", "length", "like", "likelihood", "likely", "lower", "ltrim"),
        *("nullif", "replace", "rtrim", "substr", "substring", "trim", "typeof", "unicode", "unlikely", "upper"),
        *("abs", "ceil", "ceiling", "floor", "mod", "power", "round", "sign", "sqrt", "trunc"),
        *("date", "datetime", "julianday", "strftime", "time", "unixepoch"),
    }
)
FUNCTIONS = AGGREGATES | WINDOW_FUNCTIONS | SCALARS
# SQLite calls these itself for CURRENT_DATE and its like.
IMPLICIT_FUNCTIONS = frozenset({"current_date", "current_time", "current_timestamp"})

FUNCTION_HINTS = {
    "concat": "join texts with ||",
    "format": "join texts with ||, round numbers with round()",
    "if": "use iif() or CASE",
    "ilike": "LIKE already ignores case",
    "json_group_array": "use group_concat()",
    "now": "use date('now')",
    "printf": "join texts with ||, round numbers with round()",
    "random": "leave the order out, or order by a column",
    "regexp": "use LIKE '%word%'",
}

NODES: frozenset[type[exp.Expr]] = frozenset(
    {
        # Queries and their clauses
        *(exp.Select, exp.Union, exp.Intersect, exp.Except, exp.Subquery, exp.With, exp.CTE, exp.TableAlias),
        *(exp.From, exp.Join, exp.Table, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit),
        *(exp.Offset, exp.Distinct, exp.Window, exp.WindowSpec, exp.Filter),
        # Names and values
        *(exp.Alias, exp.Column, exp.Identifier, exp.Star, exp.Literal, exp.Null, exp.Boolean, exp.Var, exp.Tuple),
        *(exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp),
        # Expressions
        *(exp.Paren, exp.Anonymous, exp.Case, exp.If, exp.Cast, exp.DataType, exp.Collate, exp.Exists, exp.In),
        *(exp.Between, exp.Like, exp.Glob, exp.Escape, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.EQ, exp.NEQ),
        *(exp.GT, exp.GTE, exp.LT, exp.LTE, exp.And, exp.Or, exp.Not, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div),
        *(exp.Mod, exp.DPipe, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseNot, exp.BitwiseLeftShift),
        exp.BitwiseRightShift,
    }
)

STATEMENTS: tuple[type[exp.Expr], ...] = (
    *(exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter, exp.Command, exp.Pragma),
    *(exp.Attach, exp.Detach, exp.Transaction, exp.Commit, exp.Rollback, exp.Analyze, exp.Describe, exp.Into),
)
