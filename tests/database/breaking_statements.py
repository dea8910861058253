"""Statements that once took minutes, gigabytes or the whole rollout, because they could not be interrupted."""

from __future__ import annotations


def _limits(levels: int) -> str:
    return "SELECT 1 LIMIT " + "(SELECT 1 LIMIT " * levels + "1" + ")" * levels


def _aliases(levels: int) -> str:
    """Each level's alias is used several times by the next, and SQLite copies what it stands for each time."""
    sql = "SELECT id AS a0 FROM disease WHERE a0 > 0"
    for level in range(1, levels):
        before = f"a{level - 1}"
        sql = (
            f"SELECT {before} + {before} AS a{level} FROM ({sql}) WHERE a{level} + a{level} + a{level} > "
            f"(SELECT a{level} + a{level})"
        )
    return sql


def _nested_where(levels: int) -> str:
    inner = "1"
    for level in range(levels, 0, -1):
        x, y = f"x{level}", f"x{level - 1}"
        inner = f"(SELECT {y}+{y} AS {x} FROM disease WHERE {x}+{x}+{x} > {inner})"
    return f"SELECT id AS x0 FROM disease WHERE x0 > {inner}"


GLOB = "overview GLOB '" + "*e" * 40 + "zz'"

BREAKING = {
    "nested date": "SELECT " + "date(" * 18 + "1" + ")" * 18,
    "nested date, deeper": "SELECT " + "date(" * 24 + "1" + ")" * 24,
    "nested limit": _limits(18),
    "aliases in subqueries": _aliases(12),
    "aliases in nested WHERE": _nested_where(8),
    "aliases in nested WHERE, deeper": _nested_where(16),
    "many ids": "SELECT id FROM disease WHERE " + " AND ".join(["id IN (" + ", ".join(["id"] * 60) + ")"] * 15),
    "one list of ids": "SELECT id FROM disease WHERE id IN (" + ", ".join(["id"] * 900) + ")",
    "globs": "SELECT " + " + ".join([f"({GLOB})"] * 60) + " FROM disease",
    "globs on a long text": "SELECT s, "
    + ", ".join(["g + g"] * 5)
    + " FROM (SELECT s, "
    + " + ".join([f"(s GLOB '{'*a' * 30}{n}')" for n in range(40)])
    + " AS g FROM (SELECT replace('"
    + "a" * 300
    + "', 'a', '"
    + "a" * 300
    + "') AS s))",
    "empty quoted argument": 'SELECT date("")',
    "arrow argument": "SELECT count('' => 1)",
    "lone surrogate": "SELECT '\ud800'",
    "200 empty strings": "SELECT " + ", ".join(["''"] * 200) + " FROM disease, drugs_info",
    "200 long names": "SELECT " + ", ".join([f"'' AS {'n' * 30}{number}" for number in range(190)]),
    "long texts to sort": "SELECT a.overview || replace('" + "a" * 300 + "', 'a', '" + "b" * 300 + "') AS s "
    "FROM disease a, disease b, disease c ORDER BY s",
    "distinct long texts": "SELECT DISTINCT a.id || b.id || replace('" + "a" * 300 + "', 'a', '" + "b" * 300 + "') "
    "FROM disease a, disease b",
    "a text of everything": "SELECT group_concat(a.overview || b.overview) FROM disease a, disease b, disease c",
    "doubled WITH queries": "WITH a0 AS (SELECT id FROM disease)"
    + "".join(f", a{n} AS (SELECT x.id FROM a{n - 1} x, a{n - 1} y)" for n in range(1, 25))
    + " SELECT count(*) FROM a24",
    "cases": "SELECT " + "CASE WHEN 1 THEN " * 300 + "1" + " END" * 300,
    "an unknown column with a long name": "SELECT " + "n" * 7_900 + " FROM disease",
    "an unknown function with a long name": "SELECT " + "n" * 7_900 + "(1) FROM disease",
    "an unknown table with a long name": "SELECT 1 FROM " + "n" * 7_900,
    "a megabyte": "SELECT '" + "x" * 1_000_000 + "'",
}
