"""The guard: what it lets through, what it refuses with which kind and hint, and which answers come from the tables."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sql_agent.database.answers import KINDS
from sql_agent.database.guard import Checked, check
from sql_agent.database.schema import Schema
from sql_agent.database.sqlite.dialect import SQLITE
from sql_agent.errors import QueryError
from sql_agent.tasks.medical.tables import TABLES
from tests.database.hostile_statements import COSTLY, EVERY, REFUSED

SCHEMA = Schema(tuple(TABLES.items()), other_tables=frozenset({"secrets", "secrets_view"}))


def accepted(sql: str) -> Checked:
    return check(sql, SCHEMA, SQLITE)


def refused(sql: str) -> QueryError:
    with pytest.raises(QueryError) as caught:
        check(sql, SCHEMA, SQLITE)
    assert caught.value.kind in KINDS
    return caught.value


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT med_name FROM drugs_info WHERE med_name LIKE '%布洛芬%'",
        "select id from Disease where DISEASE_NAME = 'x' order by id desc limit 3 offset 2;",
        "SELECT count(*), count(DISTINCT form), avg(length(overview)) FROM drugs_info, disease",
        "SELECT d.disease_name FROM disease AS d JOIN drugs_info g ON g.indication LIKE '%' || d.disease_name || '%'",
        "WITH a(n) AS (SELECT med_name FROM drugs_info), b AS (SELECT n FROM a) SELECT * FROM b UNION SELECT 'x'",
        "SELECT form, group_concat(med_name, ', ') FROM drugs_info GROUP BY form HAVING count(*) > 2",
        "SELECT CASE WHEN form IS NULL THEN 'none' ELSE upper(form) END AS 剂型 FROM main.drugs_info",
        "SELECT row_number() OVER (PARTITION BY form ORDER BY id) FROM drugs_info",
        "SELECT id FROM disease WHERE id IN (SELECT id FROM drugs_info) AND NOT EXISTS (SELECT 1 FROM drugs_info)",
        "SELECT CAST(substr(create_at, 1, 4) AS INTEGER), date('now'), round(1.5) FROM disease",
        "SELECT 'a -- b', 'it''s; DROP TABLE disease', '/* no */' FROM disease -- the end",
        "SELECT * FROM (SELECT id FROM disease) WHERE id BETWEEN 1 AND 5 AND id NOT IN (3) OR id IS NOT NULL",
        "SELECT overview FROM disease WHERE overview LIKE '9\\%' ESCAPE '\\' ORDER BY overview COLLATE nocase",
        "SELECT g.* FROM drugs_info g LEFT JOIN disease USING (id) WHERE g.rowid < 5 EXCEPT SELECT * FROM drugs_info",
    ],
)
def test_plain_selects_pass(sql: str) -> None:
    assert accepted(sql).sql.upper().startswith(("SELECT", "WITH"))


@pytest.mark.parametrize("column", sorted({c for columns in TABLES.values() for c in columns}))
def test_every_column_name_can_be_used_in_every_place(column: str) -> None:
    accepted(f"SELECT {column}, d.{column} AS {column} FROM disease d WHERE {column} = 'x' GROUP BY {column}")
    accepted(f"SELECT max({column}) FROM drugs_info {column} ORDER BY {column}.{column}")


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("", "empty"),
        ("-- nothing", "empty"),
        ("SELECT " + "1" * 9000, "too_long"),
        ("SELECT " + "(" * 300 + "1" + ")" * 300, "too_complex"),
        ("SELECT id FROM disease WHERE", "syntax"),
        ("SELECT id FROM disease WHERE disease_name = 'x", "syntax"),
        ("DELETE FROM disease", "not_select"),
        ("WITH a AS (SELECT 1) DELETE FROM disease", "not_select"),
        ("SELECT 1; SELECT 2", "multiple_statements"),
        ("SELECT * FROM secrets", "forbidden_table"),
        ("SELECT * FROM sqlite_master", "forbidden_table"),
        ("SELECT * FROM temp.disease", "forbidden_table"),
        ("SELECT * FROM pragma_table_info('disease')", "forbidden_table"),
        ("WITH disease AS (SELECT 1) SELECT * FROM disease", "forbidden_table"),
        ("SELECT load_extension('x')", "forbidden_function"),
        ("SELECT id FROM disease WHERE regexp_like(overview, 'a')", "forbidden_function"),
        ("SELECT * FROM medicines", "unknown_table"),
        ("WITH c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c", "too_complex"),
    ],
)
def test_a_refusal_names_its_kind(sql: str, kind: str) -> None:
    assert refused(sql).kind == kind


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("SELECT id FROM diseases", "disease?"),
        ("SELECT id FROM drug", "drugs_info?"),
        ("SELECT med_name，form FROM drugs_info", "','"),
        ("SELECT id FROM disease WHERE name = 'Crohn's'", "try: SELECT id FROM disease WHERE name = 'Crohn''s'"),
        ("SELECT id FROM disease WHERE name = 'x", "write '' for one quote"),
        ("DELETE FROM disease WHERE disease_name = 'Crohn's disease'", "write '' for one quote"),
        ("SELECT left(disease_name, 3) FROM disease", "substr"),
        ("SELECT year(create_at) FROM disease", "strftime"),
        ("SELECT TOP 3 id FROM disease", "LIMIT"),
        ("SELECT EXTRACT(YEAR FROM create_at) FROM disease", "strftime"),
        ("PRAGMA table_info(disease)", "disease has id, disease_name"),
        ("SELECT name FROM sqlite_master", "disease has id, disease_name"),
        ("SELECT id FROM disease WHERE regexp_like(overview, 'a')", "LIKE"),
        ("SELECT id FROM disease WHERE id IN disease", "parentheses"),
        ("```sql\nSELECT 1\n```", "alone"),
    ],
)
def test_a_refusal_says_what_to_do(sql: str, part: str) -> None:
    error = refused(sql)
    assert part in f"{error.message} {error.hint}"


@pytest.mark.parametrize(
    ("from_tables", "sql"),
    [
        (True, "SELECT med_name FROM drugs_info"),
        (True, "SELECT * FROM disease"),
        (True, "SELECT 1, d.* FROM disease d"),
        (True, "SELECT rowid FROM disease"),
        (True, "SELECT count(*) FROM disease"),
        (True, "SELECT count(1) > 3 FROM drugs_info WHERE form = 'x'"),
        (True, "SELECT upper('x' || med_name) FROM drugs_info"),
        (True, "SELECT (SELECT max(med_name) FROM drugs_info)"),
        (True, "SELECT EXISTS (SELECT 1 FROM disease WHERE disease_name = 'x')"),
        (True, "SELECT 'x' UNION SELECT med_name FROM drugs_info"),
        (True, "WITH a(n) AS (SELECT med_name FROM drugs_info) SELECT n FROM a"),
        (True, "WITH a AS (SELECT 1 FROM disease) SELECT count(*) FROM a"),
        (True, "SELECT x FROM (SELECT med_name AS x FROM drugs_info) AS t"),
        (True, "SELECT (SELECT d.disease_name) FROM disease d"),
        (True, "SELECT row_number() OVER () FROM disease"),
        (True, 'SELECT "med_name" FROM drugs_info'),
        (True, "SELECT MED_NAME FROM DRUGS_INFO"),
        (False, "SELECT 1"),
        (False, "SELECT 1 FROM drugs_info"),
        (False, "SELECT 'x' FROM disease WHERE disease_name = 'y'"),
        (False, "SELECT 'x' AS med_name FROM drugs_info"),
        (False, "SELECT max(1, 2) FROM disease"),
        (False, "SELECT (SELECT * FROM (SELECT 1)) FROM drugs_info"),
        (False, "SELECT count(*)"),
        (False, "SELECT n FROM (SELECT 'x' AS n, med_name FROM drugs_info)"),
        (False, "WITH a AS (SELECT 'x' AS med_name) SELECT med_name FROM a"),
        (False, "WITH a AS (SELECT med_name FROM drugs_info) SELECT 'x' FROM a"),
        (False, "SELECT 1 FROM drugs_info ORDER BY (SELECT med_name FROM drugs_info)"),
        (False, "SELECT date('now') FROM disease"),
    ],
)
def test_an_answer_comes_from_the_tables_when_a_column_does_or_counts_their_rows(from_tables: bool, sql: str) -> None:
    assert accepted(sql).from_tables is from_tables


def test_hostile_statements_are_many_and_distinct() -> None:
    assert len({" ".join(sql.split()).lower() for sql in EVERY}) >= 385
    assert len(COSTLY) >= 20
    assert all(len(statements) >= 9 for statements in REFUSED.values())


WORDS = """
SELECT FROM WHERE WITH RECURSIVE AS UNION ALL JOIN ON IN EXISTS CASE WHEN THEN END NOT NULL LIKE ORDER BY GROUP HAVING
LIMIT OVER ( ) ( ) , ; . * = || - -- /* */ ' " ` [ ] 1 'a' x disease drugs_info secrets sqlite_master id med_name
disease_name password count load_extension PRAGMA ATTACH DELETE VALUES CAST 名 ， ? :a 0x1
"""
PIECES = st.sampled_from([*WORDS.split(), "\x00", "\ud800"])


@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=30).map(" ".join)))
@settings(max_examples=300)
def test_any_text_is_either_accepted_or_refused_with_a_known_kind(text: str) -> None:
    for sql in (text, f"SELECT {text}", f"SELECT id FROM disease WHERE {text}"):
        try:
            check(sql, SCHEMA, SQLITE)
        except QueryError as error:
            assert error.kind in KINDS
            assert error.message
