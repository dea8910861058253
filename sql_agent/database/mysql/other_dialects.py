"""Say what to write in place of what other databases understand and MySQL does not."""

from __future__ import annotations

from sql_agent.database.other_dialects import OtherDialects

DEFAULT = "write one SELECT statement in MySQL's dialect"

hint_for = OtherDialects(
    DEFAULT,
    (
        (r"\bSELECT\s+(?:DISTINCT\s+|ALL\s+)?TOP\b", "write LIMIT 5 at the end in place of TOP 5"),
        (r"\bINTO\b", "leave INTO out: rows are only read"),
        (r"::", "write CAST(x AS CHAR) in place of x::text"),
        (r"\bDISTINCT\s+ON\b", "write GROUP BY in place of DISTINCT ON"),
        (r"\bSIMILAR\s+TO\b|\s~\*?\s|\bGLOB\b", "write LIKE '%word%'"),
        (r"\bILIKE\b", "write LIKE, which already ignores case"),
        (r"\bQUALIFY\b", "put the window function into a subquery, and its condition into WHERE outside"),
        (r"\bNULLS\s+(?:FIRST|LAST)\b", "write ORDER BY x IS NULL, x"),
        (r"\bFULL\s+(?:OUTER\s+)?JOIN\b", "write LEFT JOIN, joined with RIGHT JOIN by UNION"),
        (r"\bFILTER\s*\(", "write SUM(CASE WHEN ... THEN 1 ELSE 0 END)"),
        (r"\b(?:CUBE|GROUPING\s+SETS)\b", "write GROUP BY x WITH ROLLUP, or one SELECT for each level"),
        (r"\bARRAY\s*\[|\bUNNEST\s*\(", "write IN ('a', 'b'): there are no arrays"),
        (r"\b(?:PIVOT|UNPIVOT)\b", "write SUM(CASE WHEN ... THEN 1 ELSE 0 END) for each column"),
        (r"\bAS\s+(?:TEXT|VARCHAR|INT|INTEGER|REAL|FLOAT)\b", "write CAST(x AS CHAR), SIGNED or DECIMAL(10,2)"),
        (r"\bLIMIT\s+\S+\s+BY\b|\bROWNUM\b", "write LIMIT 5 at the end"),
        (
            r"\bFROM\s*\(.*\)\s*(?:$|WHERE|GROUP|ORDER|LIMIT)",
            "give the subquery in FROM a name: FROM (SELECT ...) AS t",
        ),
        (r"\bWHERE\b.*\bWHERE\b", "write AND in place of a second WHERE"),
        (r"\bORDER\s+BY\b.*\b(?:WHERE|GROUP\s+BY)\b", "write WHERE, then GROUP BY, then ORDER BY, then LIMIT"),
        (r"\bGROUP\s+BY\b.*\bWHERE\b", "write WHERE before GROUP BY, or HAVING after it"),
        (r"(?:\bFROM|\bJOIN|\bSELECT|,)\s*\"", "write names without quotes or in backticks: `name`"),
    ),
).hint_for
