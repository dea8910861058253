"""The database: opening, answers, limits, and that no hostile statement gets anywhere."""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sql_agent.agent.tools import answer_json
from sql_agent.database import Database, open_database
from sql_agent.database.answers import DATABASE_CHANGED, KINDS, fit
from sql_agent.database.sqlite.connection import open_file, read_only_connection
from sql_agent.errors import DatabaseFileError, QueryError
from sql_agent.schemas import QueryAnswer, QueryLimits
from sql_agent.tasks.medical.tables import SCHEMA, create_table_sql
from tests.database.hostile_statements import COSTLY, EVERY, REFUSED
from tests.support.small_database import CANARY, make_database

DEADLINE_S = 0.3
MARGIN_S = 6.0  # of a machine that is busy; without a deadline these take minutes


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_database(tmp_path_factory.mktemp("database") / "medical ?#%.db")


@pytest.fixture(scope="module")
def database(path: Path) -> Iterator[Database]:
    with open_database(path, SCHEMA, QueryLimits(deadline_s=DEADLINE_S)) as opened:
        yield opened


@pytest.fixture(scope="module")
def roomy(path: Path) -> Iterator[Database]:
    with open_database(path, SCHEMA, QueryLimits(max_chars=1_000_000, deadline_s=10)) as opened:
        yield opened


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class TestHostile:
    @pytest.mark.slow
    def test_none_gets_anywhere(
        self, database: Database, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        before, beside = digest(path), sorted(path.parent.iterdir())
        for sql in EVERY:
            start = time.perf_counter()
            answer = database.query(sql)
            seconds = time.perf_counter() - start
            assert seconds < DEADLINE_S + MARGIN_S, sql[:200]
            assert CANARY not in answer_json(answer), sql[:200]
            assert answer.status == "ok" or answer.error is not None
        assert digest(path) == before
        assert sorted(path.parent.iterdir()) == beside
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("category", REFUSED)
    def test_every_one_is_refused_with_a_known_kind_and_a_hint(self, database: Database, category: str) -> None:
        for sql in REFUSED[category]:
            answer = database.query(sql)
            assert answer.error is not None, sql[:200]
            assert answer.error.kind in KINDS
            assert answer.error.message and answer.error.hint, sql[:200]
            assert len(answer_json(answer)) < 1000, sql[:200]
            assert not answer.from_tables

    def test_sqlite_alone_holds_when_the_guard_is_gone(self, path: Path) -> None:
        before = digest(path)
        file, schema = open_file(path, SCHEMA)
        connection = file.connect(schema, QueryLimits())
        for category in ("writes", "administration", "with_writes", "other_tables", "stacked"):
            for sql in REFUSED[category]:
                try:
                    rows = connection.read(sql)
                except QueryError:
                    continue
                assert CANARY not in str(rows), sql
        connection.close()
        assert digest(path) == before

    def test_the_file_itself_is_opened_read_only(self, path: Path) -> None:
        connection = read_only_connection(path)
        for switch in ("PRAGMA query_only=ON", "PRAGMA query_only=OFF"):
            connection.execute(switch)
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                connection.execute("DELETE FROM disease")
        connection.close()

    def test_the_database_still_answers_afterwards(self, database: Database) -> None:
        for sql in COSTLY[:2]:
            database.query(sql)
        assert database.query("SELECT med_name FROM drugs_info WHERE id = 9001").records == (("布洛芬",),)


class TestAnswers:
    def test_rows_columns_and_count(self, database: Database) -> None:
        answer = database.query("SELECT id, med_name, form AS f FROM drugs_info WHERE id IN (3, 9001) ORDER BY id")
        assert answer.columns == ("id", "med_name", "f")
        assert answer.records == ((3, "Drug 3", None), (9001, "布洛芬", "片剂"))
        assert (answer.count, answer.truncated, answer.from_tables) == (2, False, True)

    def test_no_rows_is_an_answer(self, database: Database) -> None:
        answer = database.query("SELECT med_name FROM drugs_info WHERE id = -1")
        assert (answer.status, answer.records, answer.count) == ("ok", (), 0)

    def test_a_text_in_double_quotes_is_a_text(self, database: Database) -> None:
        assert database.query('SELECT id FROM drugs_info WHERE med_name = "Drug 7"').records == ((7,),)

    @pytest.mark.parametrize(
        "sql",
        [
            'SELECT upper("abc"), length("abc"), instr("abc", "b") FROM drugs_info WHERE id = 3',
            'SELECT CASE WHEN id = 3 THEN "tablet" ELSE "other" END FROM drugs_info WHERE id < 5 ORDER BY id',
            'SELECT id FROM drugs_info WHERE med_name IN ("Drug 3", "b\'c")',
            'SELECT id FROM drugs_info WHERE med_name LIKE "%g 3" OR med_name LIKE "%"||" 4"',
            'SELECT "not a name" FROM disease WHERE id = 1',
            'SELECT id FROM disease WHERE "布洛芬" = disease_name',
            'SELECT id FROM disease WHERE overview = "treatment"',
            'SELECT date("")',
            "SELECT id /* a comment */ FROM disease WHERE id = 1 -- end",
            "WITH t AS (SELECT id, form FROM drugs_info) SELECT t.form AS cnt FROM t JOIN disease d USING (id) "
            "WHERE cnt IS NULL AND d.id < 4 ORDER BY d.id",
            "SELECT t.n AS cnt FROM (SELECT count(*) AS n FROM drugs_info) AS t, disease d WHERE cnt > 3 AND d.id = 1",
            "SELECT CAST(id AS) FROM disease WHERE id = 1",
            "SELECT med_name FROM drugs_info INDEXED BY drug_name WHERE med_name = 'Drug 3'",
        ],
    )
    def test_what_sqlite_runs_is_answered_as_sqlite_answers_it(self, database: Database, path: Path, sql: str) -> None:
        with closing(sqlite3.connect(path)) as bare:
            assert list(database.query(sql).records) == bare.execute(sql).fetchall()

    def test_semicolons_at_the_end_are_left_out(self, database: Database) -> None:
        assert database.query("SELECT id FROM disease WHERE id = 1;; ;").records == ((1,),)

    @pytest.mark.parametrize(
        ("sql", "kind", "hint"),
        [
            ("SELECT name FROM drugs_info", "unknown_column", "drugs_info.med_name"),
            ('SELECT "nme" FROM drugs_info', "unknown_column", "drugs_info.med_name"),
            ("SELECT id FROM drugs_info WHERE \"nme\" = 'x'", "unknown_column", "drugs_info.med_name"),
            ('SELECT count("nme") FROM drugs_info', "unknown_column", "single quotes: 'nme'"),
            ("SELECT id FROM disease WHERE id = ?", "syntax", "the value itself"),
            ("SELECT id FROM disease WHERE id = :id", "syntax", "the value itself"),
            ("SELECT 1 FROM disease, LATERAL (SELECT 1)", "syntax", "leave out"),
            ("SELECT id FROM disease UNION ALL (SELECT 1)", "syntax", "leave out the parentheses"),
            ("SELECT group_concat(id, ', ' ORDER BY id) FROM disease", "syntax", "FROM (SELECT x FROM ... ORDER BY y)"),
            ('SELECT "disease_name" FROM drugs_info', "unknown_column", "a column of disease"),
            ("SELECT d.desease_name FROM disease d", "unknown_column", "disease.disease_name"),
            ("SELECT qqqq FROM disease", "unknown_column", "disease has id, disease_name"),
            ("SELECT id FROM drug_info", "unknown_table", "drugs_info"),
            ("SELECT id FROM disease, drugs_info", "failed", "alias before the column"),
        ],
    )
    def test_errors_carry_a_hint(self, database: Database, sql: str, kind: str, hint: str) -> None:
        error = database.query(sql).error
        assert error is not None
        assert error.kind == kind
        assert hint in (error.hint or "")

    def test_hints_come_from_the_columns_that_the_file_has(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "own.db") as connection:
            connection.execute("CREATE TABLE drugs_info (id INTEGER PRIMARY KEY, Med_Name TEXT, shelf_mark TEXT)")
            connection.execute("CREATE TABLE Disease (id INTEGER PRIMARY KEY, disease_name TEXT)")
            connection.execute("INSERT INTO drugs_info VALUES (1, 'a', 's')")
            connection.execute("INSERT INTO disease VALUES (1, 'b')")
        with open_database(tmp_path / "own.db", SCHEMA) as database:
            error = database.query("SELECT shelfmark FROM drugs_info").error
            assert error is not None
            assert "shelf_mark" in (error.hint or "")
            assert database.query("SELECT med_name FROM drugs_info").from_tables
            assert database.query("SELECT med_name FROM drugs_info UNION SELECT disease_name FROM DISEASE").count == 2


class TestLimits:
    def test_rows_are_capped_and_it_says_so(self, path: Path) -> None:
        with open_database(path, SCHEMA, QueryLimits(max_rows=5)) as database:
            answer = database.query("SELECT id FROM disease ORDER BY id")
            assert answer.records == ((1,), (2,), (3,), (4,), (5,))
            assert (answer.count, answer.truncated) == (5, True)
            assert not database.query("SELECT id FROM disease LIMIT 5").truncated

    def test_records_that_do_not_fit_are_dropped_whole(self, path: Path) -> None:
        with open_database(path, SCHEMA, QueryLimits(max_chars=200)) as database:
            answer = database.query("SELECT overview FROM disease ORDER BY id")
            assert answer.truncated
            assert answer.records[0] == ("overview of 1\nsecond line",)
            assert len(answer_json(answer)) <= 200

    def test_one_huge_cell_is_cut_and_marked_and_its_neighbours_stay(self, path: Path) -> None:
        with open_database(path, SCHEMA, QueryLimits(max_chars=300)) as database:
            answer = database.query(
                "SELECT id, replace('aaaaaaaaaa', 'a', overview || overview) AS text, form FROM disease, "
                "(SELECT 'tablet' AS form) WHERE id = 7"
            )
        ((number, text, form),) = answer.records
        assert (number, form, answer.truncated, answer.count) == (7, "tablet", True, 1)
        assert isinstance(text, str)
        assert text.endswith("…")
        assert len(text) > 100
        assert 250 < len(answer_json(answer.model_copy(update={"hint": None}))) <= 300

    def test_a_deadline_interrupts(self, database: Database) -> None:
        start = time.perf_counter()
        answer = database.query("SELECT count(*) FROM disease a, disease b, disease c, disease d")
        seconds = time.perf_counter() - start
        assert answer.error is not None
        assert answer.error.kind == "timeout"
        assert "0.3 seconds" in answer.error.message
        assert DEADLINE_S <= seconds < DEADLINE_S + MARGIN_S

    def test_a_timeout_does_not_hit_the_next_statement(self, database: Database) -> None:
        for _ in range(3):
            assert database.query(COSTLY[0]).status == "error"
            assert database.query("SELECT count(*) FROM disease").status == "ok"

    @given(
        rows=st.lists(
            st.tuples(*[st.none() | st.integers() | st.floats() | st.text() | st.binary(max_size=8)] * 3), max_size=20
        ),
        names=st.lists(st.text(max_size=100), min_size=3, max_size=3),
        max_rows=st.integers(1, 25),
        max_chars=st.integers(200, 400),
    )
    def test_any_rows_fit_and_only_finite_numbers_are_left(
        self, rows: list[tuple[object, ...]], names: list[str], max_rows: int, max_chars: int
    ) -> None:
        try:
            columns, kept, truncated = fit(names, iter(rows), QueryLimits(max_rows=max_rows, max_chars=max_chars))
        except QueryError as error:
            assert error.kind == "too_complex"
            return
        assert len(kept) <= max_rows
        assert truncated or len(kept) == len(rows)
        cells = [cell for row in kept for cell in row]
        assert all(math.isfinite(cell) for cell in cells if isinstance(cell, float))
        answer = QueryAnswer(status="ok", columns=columns, records=kept, count=len(kept), truncated=truncated)
        assert len(answer_json(answer)) <= max_chars
        for row, raw in zip(kept, rows, strict=False):
            cut = [cell != before for cell, before in zip(row, raw, strict=True) if isinstance(before, str)]
            assert truncated or not any(cut)


class TestConcurrency:
    def test_threads_do_not_wait_for_a_slow_neighbour(self, database: Database) -> None:
        slow = [threading.Thread(target=database.query, args=(COSTLY[0],)) for _ in range(2)]
        for thread in slow:
            thread.start()
        assert database.query("SELECT id FROM disease WHERE id = 3").records == ((3,),)
        assert any(thread.is_alive() for thread in slow)
        for thread in slow:
            thread.join()

    def test_a_busy_thread_does_not_turn_a_quick_query_into_a_timeout(self, database: Database) -> None:
        done = threading.Event()

        def busy() -> None:
            while not done.is_set():
                sum(range(1000))

        thread = threading.Thread(target=busy)
        thread.start()
        try:
            answer = database.query("SELECT count(*) FROM disease a, disease b WHERE a.id < b.id")
        finally:
            done.set()
            thread.join()
        assert answer.records == ((19900,),)

    def test_many_threads_get_their_own_answers(self, database: Database) -> None:
        wrong: list[int] = []

        def ask(offset: int) -> None:
            for number in range(1 + offset, 101, 8):
                if database.query(f"SELECT med_name FROM drugs_info WHERE id = {number}").records != (
                    (f"Drug {number}",),
                ):
                    wrong.append(number)

        threads = [threading.Thread(target=ask, args=(offset,)) for offset in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_a_forked_child_opens_the_database_again(self, database: Database, path: Path) -> None:
        database.query("SELECT 1")
        child = os.fork()
        if child == 0:
            refused = database.query("SELECT 1").error
            with open_database(path, SCHEMA) as again:
                fine = again.query("SELECT count(*) FROM disease").records == ((200,),)
            os._exit(0 if fine and refused is not None and "open it again" in str(refused.hint) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert database.query("SELECT 1").status == "ok"

    def test_a_closed_database_says_so(self, path: Path) -> None:
        database = open_database(path, SCHEMA)
        database.close()
        error = database.query("SELECT 1").error
        assert error is not None
        assert "closed" in error.message
        assert error.kind == DATABASE_CHANGED, "so that no rollout is scored by it"


class TestOpening:
    def refusal(self, path: Path) -> str:
        with pytest.raises(DatabaseFileError) as caught:
            open_database(path, SCHEMA)
        assert str(path) in caught.value.message
        assert caught.value.hint
        return caught.value.message

    def test_missing(self, tmp_path: Path) -> None:
        assert "no database" in self.refusal(tmp_path / "missing.db")
        assert not (tmp_path / "missing.db").exists()

    def test_folder(self, tmp_path: Path) -> None:
        assert "not a file" in self.refusal(tmp_path)

    def test_empty(self, tmp_path: Path) -> None:
        (tmp_path / "empty.db").touch()
        assert "empty file" in self.refusal(tmp_path / "empty.db")

    def test_not_a_database(self, tmp_path: Path) -> None:
        (tmp_path / "text.db").write_text("id,med_name\n" * 200, encoding="utf-8")
        assert "not a database" in self.refusal(tmp_path / "text.db")

    def test_cut_short(self, tmp_path: Path, path: Path) -> None:
        (tmp_path / "half.db").write_bytes(path.read_bytes()[:3000])
        self.refusal(tmp_path / "half.db")

    def make(self, path: Path, *statements: str) -> Path:
        with sqlite3.connect(path) as connection:
            for statement in statements:
                connection.execute(statement)
        return path

    def test_wrong_tables(self, tmp_path: Path) -> None:
        message = self.refusal(self.make(tmp_path / "a.db", "CREATE TABLE drugs (id)"))
        assert "no table drugs_info" in message
        assert "found: drugs" in message

    def test_missing_column(self, tmp_path: Path) -> None:
        drugs = create_table_sql("drugs_info")
        message = self.refusal(
            self.make(
                tmp_path / "a.db",
                drugs,
                "INSERT INTO drugs_info (id) VALUES (1)",
                "CREATE TABLE disease (id INTEGER PRIMARY KEY, name TEXT)",
            )
        )
        assert "disease has no column disease_name" in message

    def test_no_rows(self, tmp_path: Path) -> None:
        message = self.refusal(
            self.make(tmp_path / "a.db", create_table_sql("drugs_info"), create_table_sql("disease"))
        )
        assert "drugs_info has no rows" in message


COLUMNS = ("id", "med_name", "form", "indication", "component")
LITERALS = st.sampled_from(["'Drug 1'", "'%1%'", "'tablet'", "NULL", "3", "-1.5", "'it''s'", "'头痛'", "'%头%'"])
OPERATORS = st.sampled_from(["=", "<>", "<", ">=", "LIKE", "NOT LIKE", "IS", "IS NOT", "GLOB"])


@st.composite
def selects(draw: st.DrawFn) -> str:
    """Statements as a model may write them, in the part of SQL that the tool promises."""
    alias = draw(st.sampled_from(["", "g"]))
    prefix = f"{alias}." if alias else ""
    column = st.sampled_from(COLUMNS).map(
        lambda name: prefix + draw(st.sampled_from([name, name.upper(), f'"{name}"', f"[{name}]"]))
    )
    expression = st.one_of(
        column,
        column.map(lambda name: f"upper({name})"),
        column.map(lambda name: f"coalesce({name}, 'none') || '!'"),
        column.map(lambda name: f"CASE WHEN {name} IS NULL THEN 0 ELSE length({name}) END"),
        LITERALS,
    )
    comparison = st.tuples(column, OPERATORS, LITERALS).map(" ".join)
    condition = st.recursive(
        comparison | column.map(lambda name: f"{name} IN ('Drug 1', 'tablet', 5)"),
        lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR", "AND NOT"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        max_leaves=4,
    )
    source = f"drugs_info {alias}"
    if draw(st.booleans()):
        group = draw(column)
        outputs = f"{group}, count(*), min({draw(column)}), sum(length({draw(column)}))"
        return f"SELECT {outputs} FROM {source} WHERE {draw(condition)} GROUP BY {group} ORDER BY 1, 2 LIMIT 40"
    outputs = ", ".join(draw(st.lists(expression, min_size=1, max_size=4)))
    where = f" WHERE {draw(condition)}" if draw(st.booleans()) else ""
    core = f"SELECT {outputs} FROM {source}{where} ORDER BY {prefix}id LIMIT {draw(st.integers(0, 40))}"
    return draw(st.sampled_from([core, f"WITH found AS ({core}) SELECT * FROM found", f"SELECT * FROM ({core}) AS t"]))


def plain(name: str) -> str:
    """A column's name without its quotes, and without the end that the tool cuts."""
    return name.replace('"', "").replace("`", "")[:40]


@given(sql=selects())
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_allowed_statements_agree_with_bare_sqlite(roomy: Database, path: Path, sql: str) -> None:
    answer = roomy.query(sql)
    bare = sqlite3.connect(path)
    cursor = bare.execute(sql)
    assert answer.error is None, sql
    assert list(answer.records) == cursor.fetchall()
    assert [plain(name) for name in answer.columns] == [plain(item[0]) for item in cursor.description]
    bare.close()


WORDS = """
SELECT FROM WHERE WITH AS UNION ALL JOIN IN EXISTS ( ) ( ) , * = || 'a' " ` [ ] -- /* */ 1 a disease drugs_info secrets
secrets_view main . id med_name password count LIMIT
"""


@given(st.lists(st.sampled_from(WORDS.split()), max_size=25).map(" ".join))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_soup_of_words_reads_the_other_table(database: Database, soup: str) -> None:
    for sql in (f"SELECT {soup}", f"SELECT * FROM {soup}", f"SELECT id FROM disease UNION SELECT {soup}"):
        assert CANARY not in answer_json(database.query(sql))
