"""A MySQL or MariaDB server is read within limits, and nothing on it can be changed, waited for or left running."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pymysql
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pymysql.cursors import Cursor

from sql_agent.database import Database, Naming, RequiredSchema, open_database, parse_source
from sql_agent.database.counterfactual import Change
from sql_agent.database.hints import suggested_statements
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.database.provenance import evidence_read
from sql_agent.database.source import open_source
from sql_agent.errors import ConfigError, DatabaseFileError, QueryError
from sql_agent.schemas import Evidence, QueryCall, QueryLimits
from sql_agent.tasks.medical.tables import SCHEMA
from tests.database.breaking_statements import BREAKING
from tests.database.conftest import SERVER_DEADLINE_S
from tests.database.hostile_mysql import WRITES
from tests.database.hostile_statements import BROKEN, COSTLY, REFUSED
from tests.database.test_workers import LATE_S, workers
from tests.support.mariadb import administrator, empty_database, execute
from tests.support.process_tree import until
from tests.support.silent_relay import relay_to
from tests.support.small_database import CANARY

SLOW = "SELECT COUNT(*) FROM disease a, disease b, disease c, disease d"
FAST = "SELECT med_name FROM drugs_info WHERE id = 3"
PATIENT = QueryLimits(deadline_s=30)
CHANGES = ("INSERT", "UPDATE", "DELETE", "REPLACE", "TRUNCATE", "DROP", "ALTER", "CREATE")


@pytest.fixture
def connection(server_url: str) -> Iterator[pymysql.Connection[Cursor]]:
    with closing(administrator(server_url.rpartition("/")[2])) as opened:
        yield opened


def read(connection: pymysql.Connection[Cursor], sql: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def checksum(connection: pymysql.Connection[Cursor]) -> object:
    return read(connection, "CHECKSUM TABLE disease, drugs_info, secrets"), read(connection, "SHOW TABLES")


def running(connection: pymysql.Connection[Cursor]) -> list[tuple[object, ...]]:
    """The statements that the server runs for the database of `connection`, but for ours."""
    return read(
        connection,
        "SELECT id, info FROM information_schema.processlist WHERE db = DATABASE() AND command = 'Query' "
        "AND id <> CONNECTION_ID()",
    )


class TestWriting:
    def test_the_server_refuses_it_when_the_guard_is_gone_though_the_user_may_write(
        self, server_url: str, connection: pymysql.Connection[Cursor]
    ) -> None:
        before = checksum(connection)
        opened = open_source(server_url, SCHEMA, QueryLimits())
        tried = [sql for sql in WRITES if sql.startswith(CHANGES)]
        assert len(tried) >= 8
        with closing(opened.engine.connect(opened.schema, opened.limits)) as session:
            for sql in tried:
                with pytest.raises(QueryError, match="READ ONLY"):
                    session.read(sql)
        assert checksum(connection) == before

    def test_a_stored_function_is_not_called_by_the_name_of_a_function_that_mariadb_lacks(
        self, server_database: Database, connection: pymysql.Connection[Cursor]
    ) -> None:
        with connection.cursor() as cursor:
            cursor.execute("CREATE FUNCTION any_value(x TEXT) RETURNS TEXT DETERMINISTIC NO SQL RETURN 'called'")
        try:
            assert read(connection, "SELECT any_value('a')") == [("called",)]
            error = server_database.query("SELECT any_value('a')").error
        finally:
            with connection.cursor() as cursor:
                cursor.execute("DROP FUNCTION any_value")
        assert error is not None and error.kind == "forbidden_function"

    def test_several_statements_in_one_text_are_never_run(self, server_url: str) -> None:
        opened = open_source(server_url, SCHEMA, QueryLimits())
        with closing(opened.engine.connect(opened.schema, opened.limits)) as session, pytest.raises(QueryError):
            session.read("SELECT 1; SELECT 2")


class TestLimits:
    def test_a_slow_statement_ends_at_the_deadline_here_and_at_the_server(
        self, server_database: Database, connection: pymysql.Connection[Cursor]
    ) -> None:
        start = time.perf_counter()
        error = server_database.query(SLOW).error
        assert time.perf_counter() - start < SERVER_DEADLINE_S + LATE_S
        assert error is not None
        assert error.kind == "timeout"
        assert "WHERE" in str(error.hint)
        assert until(lambda: not running(connection), LATE_S)
        assert server_database.query(FAST).records == (("Drug 3",),)

    def test_a_worker_that_is_killed_leaves_nothing_running_at_the_server(
        self, server_database: Database, connection: pymysql.Connection[Cursor]
    ) -> None:
        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(server_database.query, SLOW)
            assert until(lambda: running(connection))
            for pid in workers():
                os.kill(pid, signal.SIGKILL)
            error = slow.result().error
        assert error is not None
        assert until(lambda: not running(connection), SERVER_DEADLINE_S)
        assert server_database.query(FAST).records == (("Drug 3",),)

    @pytest.mark.slow
    def test_no_costly_statement_goes_on_at_the_server(
        self, server_url: str, connection: pymysql.Connection[Cursor]
    ) -> None:
        limits = QueryLimits(deadline_s=0.4, max_rows=1000, max_chars=1_000_000)  # as there are many of them
        with open_database(server_url, SCHEMA, limits) as database:
            for sql in [*COSTLY, *REFUSED["bombs"], *BREAKING.values()]:
                start = time.perf_counter()
                answer = database.query(sql)
                assert time.perf_counter() - start < limits.deadline_s + 0.5, sql[:200]
                assert CANARY not in str(answer)
                assert until(lambda: not running(connection), SERVER_DEADLINE_S), sql[:200]

    def test_a_broken_statement_gets_an_error_of_its_own(self, server_database: Database) -> None:
        for sql in BROKEN:
            answer = server_database.query(sql)
            assert "Error:" not in str(answer.error), (sql, answer.error)
        assert server_database.query("SELECT FROM disease").error is not None

    def test_rows_and_characters_are_capped_and_a_large_result_is_not_read_to_its_end(self, server_url: str) -> None:
        with open_database(server_url, SCHEMA, QueryLimits(max_rows=5, max_chars=300)) as database:
            every = "SELECT a.id FROM disease a, disease b, disease c LIMIT 5000000"
            start = time.perf_counter()
            answer = database.query(every)
            assert time.perf_counter() - start < 1.0
            assert (answer.count, answer.truncated) == (5, True)
            assert database.query("SELECT id FROM disease").count == 5
            assert database.query("SELECT REPLACE(overview, 'e', 'eeeeeeeeee') FROM disease").truncated
            assert database.query(FAST).records == (("Drug 3",),)

    def test_many_queries_at_once_get_their_own_answers(self, server_url: str) -> None:
        statements = [f"SELECT med_name FROM drugs_info WHERE id = {number}" for number in range(1, 101)]
        # A busy machine may take its time.
        with (
            open_database(server_url, SCHEMA, QueryLimits(deadline_s=30)) as database,
            ThreadPoolExecutor(20) as threads,
        ):
            answers = list(threads.map(database.query, statements))
        assert [answer.records for answer in answers] == [((f"Drug {number}",),) for number in range(1, 101)]


class TestTheServer:
    def test_a_session_that_it_ended_is_opened_again(
        self, server_database: Database, connection: pymysql.Connection[Cursor]
    ) -> None:
        assert server_database.query(FAST).records == (("Drug 3",),)
        sessions = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        for (session,) in read(connection, sessions):
            read(connection, f"KILL {session}")
        assert server_database.query(FAST).records == (("Drug 3",),)

    def test_one_that_does_not_answer_is_no_fault_of_the_statement(
        self, server_url: str, connection: pymysql.Connection[Cursor], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sql_agent.database.local.OUTAGE_S", 0.0)
        user = server_url.partition("//")[2].partition(":")[0]
        with open_database(server_url, SCHEMA) as database:
            assert database.query(FAST).status == "ok"
            read(connection, f"ALTER USER '{user}'@'%' ACCOUNT LOCK")
            try:
                for session, of in read(connection, "SELECT id, user FROM information_schema.processlist"):
                    if of == user:
                        read(connection, f"KILL {session}")
                with pytest.raises(DatabaseFileError, match="does not answer") as error:
                    database.query(FAST)
                assert "p@ss" not in str(error.value)
            finally:
                read(connection, f"ALTER USER '{user}'@'%' ACCOUNT UNLOCK")
            assert database.query(FAST).status == "ok"

    @pytest.mark.slow
    def test_one_that_falls_silent_is_waited_for_and_the_statement_is_not_called_slow(
        self, server_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        address = parse_source(server_url)
        assert isinstance(address, ServerAddress)
        with relay_to(address.host, address.port) as relay, ThreadPoolExecutor(1) as threads:
            url = replace(address, port=relay.port).url
            with open_database(url, SCHEMA, QueryLimits(deadline_s=0.5)) as database:
                assert database.query(FAST).status == "ok"
                relay.open.clear()
                waiting = threads.submit(database.query, FAST)
                assert until(lambda: "does not answer; queries are retried for 60 s: " in caplog.text)
                relay.open.set()
                assert waiting.result().records == (("Drug 3",),)
                assert caplog.messages[1].endswith("answers again.")
                assert "p@ss" not in caplog.text
                monkeypatch.setattr("sql_agent.database.local.OUTAGE_S", 0.0)
                relay.open.clear()
                with pytest.raises(DatabaseFileError, match="does not answer"):
                    database.query(FAST)

    def test_a_table_that_is_removed_is_said(self, server_url: str, connection: pymysql.Connection[Cursor]) -> None:
        with open_database(server_url, SCHEMA) as database:
            read(connection, "RENAME TABLE disease TO disease_away")
            try:
                error = database.query("SELECT id FROM disease").error
            finally:
                read(connection, "RENAME TABLE disease_away TO disease")
            assert error is not None
            assert error.kind == "database_changed"

    @pytest.mark.parametrize(
        ("change", "part"),
        [
            (("/sql_agent_test", "/no_such_database_"), "cannot be queried"),
            (("w_", "nobody_"), "Access denied"),
            ((":3306", ":1"), "cannot be queried"),
        ],
    )
    def test_a_wrong_address_is_said_without_the_password(
        self, server_url: str, change: tuple[str, str], part: str
    ) -> None:
        with pytest.raises(DatabaseFileError, match=part) as error:
            open_database(server_url.replace(*change, 1), SCHEMA)
        assert "%40" not in str(error.value)
        assert "p@ss" not in str(error.value)
        assert error.value.hint

    def test_a_missing_table_or_column_is_said(self, server_url: str) -> None:
        with pytest.raises(DatabaseFileError, match="has no table books"):
            open_database(server_url, RequiredSchema({"books": ("id",)}, "make it"))
        with pytest.raises(DatabaseFileError, match="has no column title"):
            open_database(server_url, RequiredSchema({"disease": ("title",)}, "make it"))
        with pytest.raises(DatabaseFileError, match="has no table secrets_view"):
            open_database(server_url, RequiredSchema({"secrets_view": ("id",)}, "make it"))

    def test_tables_that_differ_by_case_only_are_told_apart(
        self, server_url: str, connection: pymysql.Connection[Cursor]
    ) -> None:
        if read(connection, "SELECT @@lower_case_table_names") != [(0,)]:
            pytest.skip("this server ignores the case of tables' names")
        read(connection, "CREATE TABLE Disease AS SELECT * FROM secrets")
        try:
            with open_database(server_url, SCHEMA) as database:
                for sql in ("SELECT * FROM Disease", "WITH a AS (SELECT 1) SELECT * FROM a, Disease"):
                    assert database.query(sql).status == "error"
        finally:
            read(connection, "DROP TABLE Disease")

    def test_a_database_of_any_names_is_queried_as_they_are_spelled(self) -> None:
        with empty_database() as url:
            if execute(url, "SELECT @@lower_case_table_names") != ((0,),):
                pytest.skip("this server ignores the case of tables' names")
            execute(url, "CREATE TABLE Orders (Id INT PRIMARY KEY, Customer TEXT, Amount INT)")
            execute(url, "INSERT INTO Orders VALUES (1, 'Anneliese', 5), (2, 'Bob', NULL)")
            execute(url, "CREATE TABLE Parts (OrderId INT, Colour TEXT, FOREIGN KEY (OrderId) REFERENCES Orders (Id))")
            execute(url, "INSERT INTO Parts VALUES (2, 'red')")
            required = RequiredSchema(None, "make it", {"Orders": Naming("customer")})
            with open_database(url, required) as database:

                def error(sql: str) -> tuple[str, str | None]:
                    found = database.query(sql).error
                    assert found is not None
                    return found.kind, found.hint

                assert database.query("SELECT o.customer FROM Orders o WHERE ID = 2").records == (("Bob",),)
                assert "Anneliese" in str(database.query("SELECT * FROM Orders WHERE Customer = 'Annelise'").hint)
                assert "empty here: Amount" in str(database.query("SELECT Amount FROM Orders WHERE Id = 2").hint)
                assert error("SELECT * FROM orders") == ("unknown_table", "did you mean Orders?")
                meant = "try: SELECT Customer FROM Orders\ndid you mean Orders.customer?"
                assert error("SELECT Custom FROM Orders") == ("unknown_column", meant)
                joined = (
                    "SELECT Customer FROM Orders JOIN Parts ON Orders.Id = Parts.OrderId WHERE Parts.Colour = 'red'"
                )
                assert joined in str(error("SELECT Customer FROM Orders WHERE Colour = 'red'")[1])
                inner = "WITH b AS (SELECT n FROM a) SELECT n FROM b"
                nested = f"WITH a AS (SELECT 1 AS n) SELECT * FROM a WHERE n IN ({inner})"
                assert database.query(nested).error is None or error(nested)[0] == "unknown_table", "MariaDB 10.11"
                execute(url, "DROP TABLE Parts")
                execute(url, "DROP TABLE Orders")
                assert error("SELECT * FROM Orders")[0] == "database_changed"


class TestAddress:
    def test_its_parts_are_read_and_its_password_is_never_shown(self) -> None:
        address = parse_source("mysql+pymysql://an%40na:p%2Fw%3A@db.example:3307/medical?charset=utf8mb4")
        assert isinstance(address, ServerAddress)
        assert (address.user, address.password, address.port) == ("an@na", "p/w:", 3307)
        assert str(address) == "mysql://an@na@db.example:3307/medical"
        assert "p/w:" not in repr(address)

    @pytest.mark.parametrize(
        ("url", "part"),
        [
            ("postgresql://a:secret@b/c", "postgresql"),
            ("mysql+pymysql://a:secret@b", "names no database"),
            ("mysql+pymysql:///c", "names no host"),
            ("mysql+pymysql://a:secret@b:x/c", "port"),
            ("mysql+pymysql://a:secret@b/c?ssl_mod=required", "ssl_mod"),
            ("mysql+pymysql://a:secret@b/c?ssl_mode=some", "ssl_mode=some"),
            ("mysql+pymysql://a:secret@b/c?ssl_ca=/no/such.pem&ssl_mode=verify_ca", "/no/such.pem"),
            ("mysql+pymysql://a:secret@b/c?ssl_ca=/no/such.pem", "without an ssl_mode"),
        ],
    )
    def test_a_wrong_url_says_what_is_wrong_without_the_password(self, url: str, part: str) -> None:
        with pytest.raises(ConfigError) as error:
            parse_source(url)
        assert part in error.value.message
        assert "secret" not in str(error.value)

    @given(password=st.text(st.sampled_from("a1[]:/?#@%&= \n＠．:é"), min_size=1) | st.text(min_size=1))
    @example("a[b")
    @example("1/x")
    @example("1?ssl_mode=x")
    def test_no_message_holds_a_part_of_a_password_that_is_not_encoded(self, password: str) -> None:
        password = f"geheim{password}geheim"
        for url in (f"mysql://root:{password}@db.example/x", f"mysql:root:{password}@x", f"mysql:/root:{password}@x"):
            try:
                shown = str(parse_source(url))
            except ConfigError as error:
                shown = str(error)
            assert "geheim" not in shown

    def test_a_server_without_tls_is_not_queried_when_tls_is_required(
        self, server_url: str, connection: pymysql.Connection[Cursor]
    ) -> None:
        if read(connection, "SELECT @@have_ssl") == [("YES",)]:
            pytest.skip("this server has TLS")
        with pytest.raises(DatabaseFileError, match=r"SSL|TLS"):
            open_database(f"{server_url}?ssl_mode=required", SCHEMA)


class TestProvenance:
    @pytest.mark.parametrize(
        ("sql", "read_cells"),
        [
            ("SELECT treatment FROM disease WHERE disease_name = 'Disease 5'", True),
            ("SELECT treatment FROM disease WHERE id = 5", True),
            ("SELECT COUNT(*) FROM disease WHERE treatment LIKE 'Drug 5;%'", False),
            ("WITH a AS (SELECT id, treatment AS t FROM disease) SELECT t FROM a WHERE id = 5", True),
            ("SELECT x.treatment FROM {database}.disease AS x WHERE x.id = 5", True),
            ("SELECT 'Drug 5; rest', {database}.disease.id FROM disease WHERE id = 5", False),
            ("SELECT treatment FROM disease WHERE id = 6", False),
            ("SELECT overview FROM disease WHERE id = 5", False),
            ("SELECT disease_name FROM disease LIMIT 3", False),
            ("SELECT NOW()", False),
        ],
    )
    def test_a_statement_that_read_a_cell_is_told_from_one_that_did_not(
        self, server_database: Database, sql: str, read_cells: bool
    ) -> None:
        sql = sql.replace("{database}", server_database.schema.database)
        answer = server_database.query(sql)
        assert answer.status == "ok", answer
        evidence = (Evidence(table="disease", row_id=5, field="treatment", quote="Drug 5"),)
        found = evidence_read(server_database, [QueryCall(sql=sql, answer=answer, seconds=0)], evidence)
        assert found == (evidence if read_cells else ())

    def test_an_emptied_cell_reads_as_null(self, server_database: Database) -> None:
        sql = "SELECT id, treatment FROM disease WHERE id IN (5, 6)"
        answer = server_database.query(sql, changes=[Change(table="disease", ids=(5,), column="treatment")])
        assert answer.records == ((5, None), (6, "Drug 6; rest"))


def test_a_hint_runs_no_column_with_the_databases_name(server_database: Database) -> None:
    """MariaDB 10.11 crashes at such a column beside JOIN ... USING."""
    column = f"{server_database.schema.database}.drugs_info"
    answer = server_database.query(f"SELECT {column}.form FROM drugs_info WHERE {column}.med_name = 'Drug'")
    assert answer.hint is not None
    assert answer.hint.startswith("try: SELECT drugs_info.med_name, drugs_info.form FROM drugs_info WHERE")


def test_a_hint_keeps_regexp_which_mariadb_runs(server_database: Database) -> None:
    sql = "SELECT form FROM drugs_info WHERE form REGEXP 'tab|caps' AND med_name = 'Drg 123'"
    tried = suggested_statements(server_database.query(sql).hint)
    assert any("form REGEXP 'tab|caps'" in each for each in tried)
    assert all(server_database.query(each).records for each in tried)


def test_values_come_as_on_sqlite(server_database: Database) -> None:
    sql = "SELECT 1, 1.5, SUM(id), AVG(id), NULL, 'a', id < 3, x'41', CAST('2020-01-02' AS DATE), 9e99 FROM disease"
    (row,) = server_database.query(sql).records
    assert row == (1, 1.5, 20100, 100.5, None, "a", 1, "<1 bytes of binary data>", "2020-01-02", 9e99)


@pytest.mark.parametrize(
    "condition",
    [
        "med_name = 'Drg 123'",
        "med_name = 'Drug'",
        "form = 'tablet' AND component = 'it''s none'",
        "indication = 'Disease 12'",
        "med_name LIKE '%rug 12%' AND form = 'cream'",
        "id = 3",
        "med_name = 'Drug 7 (100 %)'",
        "med_name IN ('Drug 12', 'Drg 123')",
        "form LIKE '%a syrup of it%'",
    ],
)
def test_the_hints_are_those_of_sqlite(server_database: Database, file_database: Database, condition: str) -> None:
    sql = f"SELECT storage FROM drugs_info WHERE {condition}"
    hint = server_database.query(sql).hint
    assert hint is not None
    assert hint == file_database.query(sql).hint


async def test_a_slow_statement_does_not_hold_up_the_event_loop(server_database: Database) -> None:
    done = threading.Event()
    slow = asyncio.create_task(server_database.in_thread(server_database.query, SLOW))
    await asyncio.sleep(0.05)
    assert (await server_database.in_thread(server_database.query, FAST)).status == "ok"
    assert not slow.done()
    done.set()
    await slow
