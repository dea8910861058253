"""Say what to write in place of what other databases understand and SQLite does not."""

from __future__ import annotations

from sql_agent.database.other_dialects import OtherDialects

DEFAULT = "write one SELECT statement in SQLite's dialect"

hint_for = OtherDialects(
    DEFAULT,
    (
        (r"\bSELECT\s+(?:DISTINCT\s+|ALL\s+)?TOP\b", "write LIMIT 5 at the end in place of TOP 5"),
        (r"\bFETCH\s+(?:FIRST|NEXT)\b", "write LIMIT 5 at the end in place of FETCH FIRST"),
        (r"::", "write CAST(x AS TEXT) in place of x::text"),
        (r"\bEXTRACT\s*\(", "write strftime('%Y', x) in place of EXTRACT(YEAR FROM x)"),
        (r"\bDISTINCT\s+ON\b", "write GROUP BY in place of DISTINCT ON"),
        (r"\bSIMILAR\s+TO\b|\bRLIKE\b|\s~\*?\s", "write LIKE '%word%'"),
        (r"\bILIKE\b", "write LIKE, which already ignores case"),
        (r"\bQUALIFY\b", "put the window function into a subquery, and its condition into WHERE outside"),
        (r"\b(?:FOR\s+(?:UPDATE|SHARE)|TABLESAMPLE|LATERAL)\b", "leave it out: tables are only read, and as a whole"),
        (r"\bINTERVAL\b", "write date(x, '+1 day') in place of INTERVAL"),
        (r"\b(?:ROLLUP|CUBE|GROUPING\s+SETS)\b", "write one SELECT for each level, joined with UNION ALL"),
        (r"\b(?:ANY|ALL|SOME)\s*\(\s*SELECT\b", "write IN (SELECT ...), or compare with (SELECT max(x) ...)"),
        (r"\bARRAY\s*\[|\bUNNEST\s*\(", "write IN ('a', 'b'): there are no arrays"),
        (r"\b(?:PIVOT|UNPIVOT)\b", "write sum(CASE WHEN ... THEN 1 ELSE 0 END) for each column"),
        (
            r"\b(?:TRIM|SUBSTRING|POSITION)\s*\([^()]*\b(?:FROM|IN|FOR)\b",
            "write trim(x, 'a'), substr(x, 1, 3), instr(x, 'a')",
        ),
        (r"\bLIMIT\s+\S+\s+BY\b|\bROWNUM\b", "write LIMIT 5 at the end"),
        (r"\bWHERE\b.*\bWHERE\b", "write AND in place of a second WHERE"),
        (r"\bORDER\s+BY\b.*\b(?:WHERE|GROUP\s+BY)\b", "write WHERE, then GROUP BY, then ORDER BY, then LIMIT"),
        (r"\bGROUP\s+BY\b.*\bWHERE\b", "write WHERE before GROUP BY, or HAVING after it"),
    ),
).hint_for
