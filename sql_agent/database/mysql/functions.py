"""List the MySQL and MariaDB functions that a statement may call, and what to write in place of others."""

from __future__ import annotations

# Without any_value(), which MariaDB does not have: a stored function of that name would be called.
AGGREGATES = frozenset(
    {
        *("avg", "bit_and", "bit_or", "bit_xor", "count", "group_concat", "max", "min", "std", "stddev"),
        *("stddev_pop", "stddev_samp", "sum", "var_pop", "var_samp", "variance"),
    }
)
WINDOW_FUNCTIONS = frozenset(
    {
        *("cume_dist", "dense_rank", "first_value", "lag", "last_value", "lead", "nth_value", "ntile"),
        *("percent_rank", "rank", "row_number"),
    }
)
# Left out on purpose: whatever reads files, versions, users or settings, waits or takes locks, writes, differs from run
# to run, or makes a text of any length out of a number (repeat, space, lpad, rpad), because no process of ours bounds
# what the server spends.
SCALARS = frozenset(
    {
        *("abs", "acos", "asin", "atan", "atan2", "ceil", "ceiling", "cos", "cot", "crc32", "degrees", "exp", "floor"),
        *("ln", "log", "log10", "log2", "mod", "pi", "pow", "power", "radians", "round", "sign", "sin", "sqrt", "tan"),
        *("truncate", "ascii", "bin", "bit_count", "bit_length", "char", "char_length", "character_length", "concat"),
        *("concat_ws", "conv", "elt", "field", "find_in_set", "format", "hex", "insert", "instr", "lcase", "left"),
        *("length", "locate", "lower", "ltrim", "mid", "oct", "octet_length", "ord", "quote", "replace", "reverse"),
        *("right", "rtrim", "soundex", "strcmp", "substr", "substring", "substring_index", "trim", "ucase", "unhex"),
        *("upper", "coalesce", "greatest", "if", "ifnull", "isnull", "least", "nullif", "nvl", "date", "date_add"),
        *("adddate", "addtime", "date_format", "date_sub", "subdate", "subtime", "datediff", "day", "dayname"),
        *("dayofmonth", "dayofweek", "dayofyear", "from_days", "from_unixtime", "hour", "last_day", "makedate"),
        *("maketime", "microsecond", "minute", "month", "monthname", "now", "curdate", "current_date", "curtime"),
        *("current_time", "current_timestamp", "localtime", "localtimestamp", "period_add", "period_diff", "quarter"),
        *("sec_to_time", "second", "str_to_date", "time", "time_format", "time_to_sec", "timediff", "timestamp"),
        *("timestampadd", "timestampdiff", "to_days", "to_seconds", "unix_timestamp", "utc_date", "utc_time"),
        *("utc_timestamp", "week", "weekday", "weekofyear", "year", "yearweek", "json_array", "json_contains"),
        *("json_extract", "json_length", "json_object", "json_type", "json_unquote", "json_valid"),
    }
)
FUNCTIONS = AGGREGATES | WINDOW_FUNCTIONS | SCALARS

_DATE_PART = "use YEAR(x), MONTH(x), DAY(x) or DATE_FORMAT(x, '%Y-%m')"
FUNCTION_HINTS = {
    **dict.fromkeys(("printf", "to_char"), "use CONCAT(), FORMAT() or DATE_FORMAT()"),
    **dict.fromkeys(("strftime", "date_part", "datepart", "julianday"), _DATE_PART),
    **dict.fromkeys(("charindex", "strpos"), "use INSTR(text, part)"),
    **dict.fromkeys(
        ("regexp", "regexp_like", "regexp_instr", "regexp_substr", "regexp_replace", "match", "contains", "glob"),
        "use LIKE '%word%'",
    ),
    **dict.fromkeys(("getdate", "sysdate", "today", "datetime"), "use NOW() or CURDATE()"),
    **dict.fromkeys(("len", "datalength"), "use CHAR_LENGTH()"),
    **dict.fromkeys(
        ("string_agg", "array_agg", "listagg", "json_arrayagg", "json_objectagg"), "use GROUP_CONCAT(x SEPARATOR ', ')"
    ),
    **dict.fromkeys(("rand", "uuid"), "leave the order out, or order by a column"),
    **dict.fromkeys(("median", "percentile_cont"), "use AVG(), MIN() and MAX()"),
    **dict.fromkeys(("to_number", "to_date", "try_cast", "str"), "use CAST(x AS CHAR), SIGNED or DECIMAL(10,2)"),
    **dict.fromkeys(("repeat", "space", "lpad", "rpad"), "write the text out"),
    **dict.fromkeys(("total",), "use SUM()"),
    "iif": "use IF() or CASE",
    "typeof": "compare with CAST(x AS CHAR)",
    "split_part": "use SUBSTRING_INDEX(text, ',', 1)",
    "initcap": "use CONCAT(UPPER(LEFT(x, 1)), SUBSTRING(x, 2))",
}
