"""Say what to write in place of what another database understands and the engine does not."""

from __future__ import annotations

import re

_AGGREGATES = r"\b(?:GROUP_CONCAT|STRING_AGG|ARRAY_AGG|JSON_AGG|LISTAGG)"

_SAME = "as for SQLite"
# A pattern, which ignores case, and the hint for SQLite and for MySQL; None where the engine has it or a later row
# tells more. The first pattern that is found in a statement decides.
_TABLE: tuple[tuple[str, str | None, str | None], ...] = (
    (
        r"\bSELECT\s+(?:DISTINCT\s+|ALL\s+)?TOP\b",
        "write LIMIT 5 at the end in place of TOP 5",
        _SAME,
    ),
    (r"\bFETCH\s+(?:FIRST|NEXT)\b", "write LIMIT 5 at the end in place of FETCH FIRST", None),
    (r"\bINTO\b", None, "leave INTO out: rows are only read"),
    (
        r"::",
        "write CAST(x AS TEXT) in place of x::text",
        "write CAST(x AS CHAR) in place of x::text",
    ),
    (r"\bEXTRACT\s*\(", "write strftime('%Y', x) in place of EXTRACT(YEAR FROM x)", None),
    (r"\bDISTINCT\s+ON\b", "write GROUP BY in place of DISTINCT ON", _SAME),
    (r"\bSIMILAR\s+TO\b|\bRLIKE\b|\s~\*?\s", "write LIKE '%word%'", None),
    (r"\bSIMILAR\s+TO\b|\s~\*?\s|\bGLOB\b", None, "write LIKE '%word%'"),
    (r"\bILIKE\b", "write LIKE, which already ignores case", _SAME),
    (
        r"\bQUALIFY\b",
        "put the window function into a subquery, and its condition into WHERE outside",
        _SAME,
    ),
    (
        r"\b(?:FOR\s+(?:UPDATE|SHARE)|TABLESAMPLE|LATERAL)\b",
        "leave it out: tables are only read, and as a whole",
        None,
    ),
    (r"\bINTERVAL\b", "write date(x, '+1 day') in place of INTERVAL", None),
    (r"\bNULLS\s+(?:FIRST|LAST)\b", None, "write ORDER BY x IS NULL, x"),
    (r"\bFULL\s+(?:OUTER\s+)?JOIN\b", None, "write LEFT JOIN, joined with RIGHT JOIN by UNION"),
    (r"\bFILTER\s*\(", None, "write SUM(CASE WHEN ... THEN 1 ELSE 0 END)"),
    (r"\b(?:ROLLUP|CUBE|GROUPING\s+SETS)\b", "write one SELECT for each level, joined with UNION ALL", None),
    (r"\b(?:CUBE|GROUPING\s+SETS)\b", None, "write GROUP BY x WITH ROLLUP, or one SELECT for each level"),
    (
        r"(?<!UNION\s)(?<!EXCEPT\s)(?<!INTERSECT\s)\b(?:ANY|ALL|SOME)\s*\(\s*SELECT\b",
        "write IN (SELECT ...), or compare with (SELECT max(x) ...)",
        None,
    ),
    (
        r"\b(?:UNION(?:\s+ALL)?|EXCEPT|INTERSECT)\s*\(\s*(?:SELECT|WITH)\b",
        "leave out the parentheses: SELECT ... UNION ALL SELECT ...",
        None,
    ),
    (
        r"\bARRAY\s*\[|\bUNNEST\s*\(",
        "write IN ('a', 'b'): there are no arrays",
        _SAME,
    ),
    (
        r"\b(?:PIVOT|UNPIVOT)\b",
        "write sum(CASE WHEN ... THEN 1 ELSE 0 END) for each column",
        "write SUM(CASE WHEN ... THEN 1 ELSE 0 END) for each column",
    ),
    (
        r"\b(?:TRIM|SUBSTRING|POSITION)\s*\([^()]*\b(?:FROM|IN|FOR)\b",
        "write trim(x, 'a'), substr(x, 1, 3), instr(x, 'a')",
        None,
    ),
    (r"\bAS\s+(?:TEXT|VARCHAR|INT|INTEGER|REAL|FLOAT)\b", None, "write CAST(x AS CHAR), SIGNED or DECIMAL(10,2)"),
    (r"\bLIMIT\s+\S+\s+BY\b|\bROWNUM\b", "write LIMIT 5 at the end", _SAME),
    (
        r"\bFROM\s*\(.*\)\s*(?:$|WHERE|GROUP|ORDER|LIMIT)",
        None,
        "give the subquery in FROM a name: FROM (SELECT ...) AS t",
    ),
    (
        _AGGREGATES + r"\s*\((?:[^()]|\([^()]*\))*\bORDER\s+BY\b",
        "write SELECT group_concat(x, ', ') FROM (SELECT x FROM ... ORDER BY y)",
        None,
    ),
    (r"\bWHERE\b.*\bWHERE\b", "write AND in place of a second WHERE", _SAME),
    (
        r"\bORDER\s+BY\b.*\b(?:WHERE|GROUP\s+BY)\b",
        "write WHERE, then GROUP BY, then ORDER BY, then LIMIT",
        _SAME,
    ),
    (
        r"\bGROUP\s+BY\b.*\bWHERE\b",
        "write WHERE before GROUP BY, or HAVING after it",
        _SAME,
    ),
    (r"(?:\bFROM|\bJOIN|\bSELECT|,)\s*\"", None, "write names without quotes or in backticks: `name`"),
)
_COMPILED = [
    (re.compile(pattern, re.IGNORECASE), (sqlite, sqlite if mysql == _SAME else mysql))
    for pattern, sqlite, mysql in _TABLE
]


def syntax_hint(sql: str, *, is_mysql: bool) -> str:
    """Return what to write in place of the statement `sql`, which the engine cannot read."""
    flat = " ".join(sql.split())
    found = (hints[is_mysql] for pattern, hints in _COMPILED if hints[is_mysql] and pattern.search(flat))
    engine = "MySQL" if is_mysql else "SQLite"
    return next(found, None) or f"write one SELECT statement in {engine}'s dialect"
