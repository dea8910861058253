"""List the SQLite functions that a statement may call, and what to write in place of others."""

from __future__ import annotations

AGGREGATES = frozenset(
    {
        *("avg", "count", "group_concat", "json_group_array", "json_group_object", "max", "min", "string_agg", "sum"),
        "total",
    }
)
WINDOW_FUNCTIONS = frozenset(
    {
        *("cume_dist", "dense_rank", "first_value", "lag", "last_value", "lead", "nth_value", "ntile"),
        *("percent_rank", "rank", "row_number"),
    }
)
# Left out on purpose: whatever loads code, reads files or versions, or differs from run to run (random), because a
# statement is run again to find out which cells it read.
SCALARS = frozenset(
    {
        *("coalesce", "glob", "ifnull", "iif", "if", "instr", "length", "like", "likelihood", "likely", "lower"),
        *("ltrim", "nullif", "replace", "rtrim", "substr", "substring", "trim", "typeof", "unicode", "unlikely"),
        *("upper", "char", "concat", "concat_ws", "format", "hex", "octet_length", "printf", "quote", "soundex"),
        *("unhex", "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "ceiling", "cos"),
        *("cosh", "degrees", "exp", "floor", "ln", "log", "log10", "log2", "mod", "pi", "pow", "power", "radians"),
        *("round", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "date", "datetime", "julianday"),
        *("strftime", "time", "timediff", "unixepoch", "->", "->>", "json", "json_array", "json_array_length"),
        *("json_extract", "json_insert", "json_object", "json_patch", "json_quote", "json_remove", "json_replace"),
        *("json_set", "json_type", "json_valid"),
    }
)
FUNCTIONS = AGGREGATES | WINDOW_FUNCTIONS | SCALARS
# SQLite calls these itself for CURRENT_DATE and its like.
IMPLICIT_FUNCTIONS = frozenset({"current_date", "current_time", "current_timestamp"})

_JOIN_TEXTS = "join texts with ||"
_DATE_PART = "use strftime('%Y', x), '%m' for the month, '%d' for the day"
_POSITION = "use instr(text, part)"
_MATCH = "use LIKE '%word%'"
FUNCTION_HINTS = {
    **dict.fromkeys(("concat", "concat_ws"), _JOIN_TEXTS),
    **dict.fromkeys(("year", "month", "day", "date_part", "date_format", "to_char", "extract", "datepart"), _DATE_PART),
    **dict.fromkeys(("charindex", "locate", "position", "strpos", "find_in_set"), _POSITION),
    **dict.fromkeys(("regexp", "regexp_like", "rlike", "contains", "match", "similarity", "regexp_matches"), _MATCH),
    **dict.fromkeys(("now", "getdate", "curdate", "sysdate", "today"), "use date('now')"),
    **dict.fromkeys(("len", "char_length", "character_length", "octet_length"), "use length()"),
    **dict.fromkeys(("array_agg", "string_agg", "listagg", "json_agg", "collect_list"), "use group_concat(x, ', ')"),
    **dict.fromkeys(("nvl", "isnull"), "use ifnull(x, y)"),
    **dict.fromkeys(("datediff", "date_diff", "age"), "use julianday(a) - julianday(b)"),
    **dict.fromkeys(("dateadd", "date_add", "date_sub", "adddate"), "use date(x, '+1 day')"),
    **dict.fromkeys(("random", "rand", "randomblob"), "leave the order out, or order by a column"),
    **dict.fromkeys(("stddev", "variance", "median", "percentile_cont"), "use avg(), min() and max()"),
    **dict.fromkeys(("convert", "to_number", "to_date", "str", "try_cast"), "use CAST(x AS TEXT), INTEGER or REAL"),
    "left": "use substr(x, 1, 3)",
    "right": "use substr(x, -3)",
    "if": "use iif() or CASE",
    "ilike": "LIKE already ignores case",
    "greatest": "use max(a, b)",
    "least": "use min(a, b)",
    "initcap": "use upper(substr(x, 1, 1)) || substr(x, 2)",
    "format": "join texts with ||, round numbers with round()",
    "unhex": "compare with hex()",
    "split_part": "use substr() and instr()",
    "substring_index": "use substr() and instr()",
    "reverse": "leave the order of letters as it is",
    "repeat": "write the text out",
    "lpad": "use printf('%05d', x)",
    "rpad": "use printf('%-5s', x)",
    "ucase": "use upper()",
    "lcase": "use lower()",
}
