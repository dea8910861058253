"""Whatever a statement does, and whatever happens to its process, the program gets an answer in time and goes on."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from sql_agent.agent.tools import answer_json
from sql_agent.database import Database, Naming, RequiredSchema, open_database, open_source, worker
from sql_agent.database.cell_texts import CellTexts
from sql_agent.database.name_index import NameIndex
from sql_agent.database.named_values import ValueIndex
from sql_agent.errors import DatabaseFileError
from sql_agent.schemas import QueryLimits
from sql_agent.system.resources import usable_cores
from sql_agent.tasks.medical.tables import SCHEMA
from tests.database.breaking_statements import BREAKING
from tests.support.process_tree import descendants, levels, processes, until
from tests.support.small_database import make_database

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

DEADLINE_S = 1.0
LATE_S = 0.3
GROWTH_KIB = 400 * 1024  # what the address space of a worker may grow by
SLOW = "SELECT count(*) FROM disease a, disease b, disease c, disease d"
FAST = "SELECT med_name FROM drugs_info WHERE id = 3"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_database(tmp_path_factory.mktemp("workers") / "medical.db")


@pytest.fixture(scope="module")
def database(path: Path) -> Iterator[Database]:
    with open_database(path, SCHEMA, QueryLimits(deadline_s=DEADLINE_S)) as opened:
        opened.query(FAST)
        yield opened


def workers() -> list[int]:
    """The processes that run statements: the server started them."""
    return [pid for level in levels(os.getpid())[1:] for pid in level]


def server_kib() -> int:
    """The address space of the server that workers are forked from: other tests' databases stay in it."""
    return max(memory_kib(pid, "VmSize") for pid in levels(os.getpid())[0])


def open_files(pid: int) -> list[str]:
    with contextlib.suppress(OSError):  # it has just ended
        return [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    return []


def memory_kib(pid: int | str, field: str) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith(field)), 0)


def loaded_from(path: Path) -> worker._Loaded:
    names, texts = NameIndex(()), CellTexts({})
    return worker._Loaded(open_source(path, SCHEMA, QueryLimits()), names, texts, ValueIndex(names, texts), None)


@contextlib.contextmanager
def session_in_this_process(path: Path) -> Iterator[worker._Session]:
    with tempfile.TemporaryFile() as turns:
        yield worker._Session(loaded_from(path), turns)


def fail_with(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise error

    return fail


@pytest.mark.parametrize(("error", "has_traceback"), [(KeyError("no such place"), True), (MemoryError(), False)])
def test_a_hint_that_fails_leaves_the_answer_and_a_traceback(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, has_traceback: bool
) -> None:
    with session_in_this_process(path) as session:
        monkeypatch.setattr(session._hints, "hint", fail_with(error))
        sql = "SELECT med_name FROM drugs_info WHERE id = -1"
        answer = session._answer({"sql": sql, "changes": [], "due": time.monotonic() + 30})
    assert (answer.status, answer.hint) == ("ok", None)
    assert ["in fail\n" in record.getMessage() for record in caplog.records] == [has_traceback]


def test_a_statement_that_a_bug_fails_leaves_an_answer_and_a_traceback_without_the_statement(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sql = "SELECT med_name FROM drugs_info WHERE med_name = 'Zhang San'"
    with session_in_this_process(path) as session:
        monkeypatch.setattr(session, "_connect", fail_with(KeyError(sql)))
        answer = session._answer({"sql": sql, "changes": [], "due": time.monotonic() + 30})
    assert answer.error is not None
    assert answer.error.message == f"the statement cannot be read: KeyError: {sql!r}"
    assert re.search(r"KeyError\n.*in fail\n", caplog.text, re.DOTALL)
    assert "Zhang" not in caplog.text


def test_a_bug_that_ends_a_worker_leaves_a_traceback_without_the_question(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("die_with_parent", "_limit_resources"):
        monkeypatch.setattr(worker, name, lambda: None)
    monkeypatch.setattr(os, "_exit", fail_with(SystemExit()))
    monkeypatch.setattr(ValueIndex, "named_in", fail_with(KeyError("Zhang San")))
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs, tempfile.TemporaryFile() as turns:
        ours.send_bytes(b'{"text": "Zhang San"}')
        with pytest.raises(SystemExit):
            worker._run_worker(theirs, loaded_from(path), turns)
    assert re.search(r"KeyError\n.*in fail\n", caplog.text, re.DOTALL)
    assert "Zhang" not in caplog.text + capsys.readouterr().err


def test_a_look_up_without_a_reply_says_why(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_database(path, SCHEMA) as opened:
        monkeypatch.setattr(opened, "_reply", fail_with(EOFError()))
        with pytest.raises(DatabaseFileError, match="cannot be looked up: EOFError"):
            opened.named_values("Drug 3")


def test_an_answer_is_not_lost_with_its_hint_when_the_deadline_passes(tmp_path: Path) -> None:
    path = tmp_path / "books.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE books (title TEXT, note TEXT)")
        connection.executemany("INSERT INTO books VALUES (?, ?)", [(f"{n}", "x" * 300) for n in range(250_000)])
    connection.close()
    slow = " AND ".join(f"note LIKE '%x%x{n}%'" for n in range(3))
    with open_database(path, RequiredSchema(None, hint="-"), QueryLimits(deadline_s=DEADLINE_S)) as opened:
        answers = [opened.query(f"SELECT note FROM books WHERE title = 'none' AND {slow}") for _ in range(4)]
    assert [answer.status for answer in answers] == ["ok"] * 4


@pytest.mark.parametrize("name", BREAKING)
@pytest.mark.slow
def test_a_breaking_statement_is_answered_in_time_and_the_program_does_not_grow(database: Database, name: str) -> None:
    before, most, done = memory_kib("self", "VmRSS"), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.05):
            most = max(most, *(memory_kib(pid, "VmHWM") for pid in workers()), 0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    answer = database.query(BREAKING[name])
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    assert seconds < DEADLINE_S + LATE_S
    assert most < server_kib() + GROWTH_KIB
    assert memory_kib("self", "VmRSS") < before + 10 * 1024
    # `max_chars` limits the answer without its hint.
    assert len(answer_json(answer.model_copy(update={"hint": None}))) <= database.limits.max_chars
    assert database.query(FAST).records == (("Drug 3",),)


@pytest.mark.slow
def test_large_statements_leave_no_large_process(path: Path) -> None:
    others = set(workers())
    with open_database(path, SCHEMA, QueryLimits(deadline_s=DEADLINE_S)) as opened:
        most = max(memory_kib(pid, "VmRSS") for pid in set(workers()) - others) + 100 * 1024
        for _ in range(3):
            opened.query(BREAKING["doubled WITH queries"])
        assert opened.query(FAST).records == (("Drug 3",),)
        assert until(lambda: all(memory_kib(pid, "VmRSS") < most for pid in set(workers()) - others))


def test_a_fast_query_ends_while_many_slow_ones_still_run(database: Database) -> None:
    with ThreadPoolExecutor(20) as threads:
        slow = [threads.submit(database.query, SLOW) for _ in range(20)]
        assert until(lambda: len(workers()) >= 3)
        assert database.query(FAST).records == (("Drug 3",),)
        assert not all(query.done() for query in slow)
        assert {query.result().error.kind for query in slow if query.result().error} == {"timeout"}  # type: ignore[union-attr]


@pytest.mark.slow
def test_slow_statements_take_turns_and_end_without_a_restart(path: Path) -> None:
    most = max(1, usable_cores() - 1)

    def used() -> list[float]:
        """Seconds of processor time that each worker uses within a second."""
        before = {pid: cpu_ticks(pid) for pid in workers()}
        time.sleep(1)
        return [(cpu_ticks(pid) - ticks) / os.sysconf("SC_CLK_TCK") for pid, ticks in before.items()]

    def keeps_its_processes(database: Database) -> bool:
        before = workers()
        return database.query(SLOW).error is not None and workers() == before

    limits = QueryLimits(deadline_s=4)
    with open_database(path, SCHEMA, limits) as database, ThreadPoolExecutor(most + 3) as threads:
        slow = [threads.submit(database.query, SLOW) for _ in range(most + 3)]
        assert until(lambda: len(workers()) >= most + 3)
        time.sleep(0.5)  # a new worker uses some milliseconds before its statement needs a turn
        seconds = used()
        assert sum(seconds) < most + 0.3
        assert sum(each > 0.02 for each in seconds) > most, "a turn ends before the statement does"
        assert {query.result().error.kind for query in slow if query.result().error} == {"timeout"}  # type: ignore[union-attr]
        assert until(lambda: keeps_its_processes(database), 30), "on a busy machine one may be late, and is killed"


@pytest.mark.slow
def test_a_search_of_a_few_turns_overtakes_slow_statements(path: Path) -> None:
    slow = 24 * max(1, usable_cores() - 1)  # with turns of one length in any order, a turn would come after seconds
    search = "SELECT count(*) FROM disease a, disease b, disease c WHERE c.id <= 25"  # about 50 ms of processor time
    limits = QueryLimits(deadline_s=12)
    with open_database(path, SCHEMA, limits) as database, ThreadPoolExecutor(slow) as threads:
        for _ in range(slow):
            threads.submit(database.query, SLOW)
        assert until(lambda: len(workers()) >= slow)
        time.sleep(3)  # in which the slow ones have had two turns each

        def seconds() -> float:
            start = time.perf_counter()
            assert database.query(search).status == "ok"
            return time.perf_counter() - start

        assert sorted(seconds() for _ in range(5))[2] < 1
        database.close()


def test_a_worker_that_is_killed_gives_its_turn_back(path: Path) -> None:
    others = set(workers())  # of databases that other tests keep open

    def busy() -> set[int]:
        return {pid for pid in workers() if pid not in others and cpu_ticks(pid) > 20}

    with open_database(path, SCHEMA, QueryLimits(deadline_s=20)) as database, ThreadPoolExecutor(8) as threads:
        slow = [threads.submit(database.query, SLOW) for _ in range(max(1, (os.cpu_count() or 1) - 1))]
        assert until(lambda: len(busy()) == len(slow))
        killed = busy()
        next_one = threads.submit(database.query, SLOW)
        assert until(lambda: len(set(workers()) - others) > len(slow)), "those of other tests may end meanwhile"
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        assert until(lambda: bool(busy() - killed))
        database.close()
        assert next_one.result().error is not None


def test_a_statement_behind_slow_ones_is_answered_at_its_own_deadline(path: Path) -> None:
    with open_database(path, SCHEMA, QueryLimits(deadline_s=1)) as database, ThreadPoolExecutor(12) as threads:
        list(threads.map(database.query, [FAST] * 24))  # so that no process is started meanwhile

        def seconds(sql: str) -> float:
            start = time.perf_counter()
            assert database.query(sql).error is not None
            return time.perf_counter() - start

        assert max(threads.map(seconds, [SLOW] * 12)) < 1.0 + 2 * LATE_S


def test_more_queries_at_once_than_there_may_be_workers_wait_for_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = len(workers())  # of databases that other tests keep open
    with open_database(path, SCHEMA) as database, ThreadPoolExecutor(100) as threads:
        answers = list(threads.map(database.query, [FAST] * 200))
        assert {answer.records for answer in answers} == {(("Drug 3",),)}
        monkeypatch.setattr("sql_agent.database.local._KEPT_IDLE_S", 0.0)
        assert database.query(FAST).error is None
        assert until(lambda: len(workers()) <= others + 1), "those that were not needed ended"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_worker_that_dies_in_a_query_is_an_answer_and_is_replaced(path: Path, how: signal.Signals) -> None:
    with open_database(path, SCHEMA, QueryLimits(deadline_s=20)) as database, ThreadPoolExecutor(1) as threads:
        slow = threads.submit(database.query, SLOW)
        assert until(lambda: any(cpu_ticks(pid) > 10 for pid in workers())), "more than a worker's start takes"
        killed = set(workers())
        for pid in killed:
            os.kill(pid, how)
        error = slow.result().error
        assert error is not None
        assert error.kind == "too_complex"
        assert error.hint
        # On a busy machine an idle one may still be dying, and would take the next statement with it.
        assert until(lambda: killed.isdisjoint(workers()))
        assert database.query(FAST).records == (("Drug 3",),)


def cpu_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def test_idle_workers_and_the_server_may_be_killed(database: Database) -> None:
    for which in (slice(1, None), slice(0, 1)):
        assert database.query(FAST).records == (("Drug 3",),)
        for pid in descendants(os.getpid())[which]:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
        assert database.query(FAST).records == (("Drug 3",),)


def test_after_close_only_the_server_is_left_until_the_program_ends_and_a_running_query_is_told(path: Path) -> None:
    script = f"""
import sys, threading, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from sql_agent.tasks.medical.tables import SCHEMA
from sql_agent.database import open_database
from tests.support.process_tree import descendants, levels, until
import os
database = open_database(Path({str(path)!r}), SCHEMA)
database.query({FAST!r})
answers = []
thread = threading.Thread(target=lambda: answers.append(database.query({SLOW!r})))
thread.start()
time.sleep(0.3)
assert len(descendants(os.getpid())) >= 2
database.close()
thread.join()
assert "closed" in answers[0].error.message, answers
assert until(lambda: not levels(os.getpid())[1:])
print(*descendants(os.getpid()))
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    (server,) = map(int, done.stdout.split())
    assert server not in processes()


def test_nothing_is_left_when_the_program_is_killed(path: Path) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from sql_agent.tasks.medical.tables import SCHEMA
from sql_agent.database import open_database
from sql_agent.schemas import QueryLimits
database = open_database({str(path)!r}, SCHEMA, QueryLimits(deadline_s=60))
database.query({FAST!r})
print("ready", flush=True)
database.query({SLOW!r})
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        assert until(lambda: any(cpu_ticks(pid) > 20 for pid in descendants(program.pid)[1:]))
        below = descendants(program.pid)
        assert len(below) >= 2
        program.kill()
    assert until(lambda: not set(below) & processes().keys())


class TestAnotherFile:
    @pytest.fixture
    def file(self, path: Path, tmp_path: Path) -> Path:
        return Path(shutil.copy(path, tmp_path / "own.db"))

    def refusal(self, database: Database) -> str:
        error = database.query("SELECT count(*) FROM disease").error
        assert error is not None
        assert error.kind == "database_changed"
        assert str(database.source) in error.message
        assert error.hint
        return error.message

    def test_one_put_in_its_place_is_said_and_never_read(self, file: Path, tmp_path: Path) -> None:
        with open_database(file, SCHEMA) as database:
            assert database.query("SELECT count(*) FROM disease").records == ((200,),)
            make_database(tmp_path / "new.db", rows=20).replace(file)
            assert "replaced" in self.refusal(database)
            assert "replaced" in self.refusal(database)

    def test_one_copied_over_it_too(self, file: Path, tmp_path: Path) -> None:
        with open_database(file, SCHEMA) as database:
            database.query(FAST)
            shutil.copy(make_database(tmp_path / "new.db", rows=20), file)
            assert "changed" in self.refusal(database)

    def test_its_removal_too(self, file: Path) -> None:
        with open_database(file, SCHEMA) as database:
            file.unlink()
            assert "gone" in self.refusal(database)

    @pytest.mark.parametrize("keep", [0, 5_000])
    def test_damage_too(self, file: Path, keep: int) -> None:
        with open_database(file, SCHEMA) as database:
            database.query(FAST)
            with file.open("r+b") as opened:
                opened.seek(keep)
                opened.write(b"\x07" * 9_000)
            assert "changed" in self.refusal(database)

    def test_a_change_while_a_query_runs_too(self, file: Path) -> None:
        with (
            open_database(file, SCHEMA, QueryLimits(deadline_s=20)) as database,
            ThreadPoolExecutor(1) as threads,
        ):
            database.query(FAST)
            slow = threads.submit(database.query, f"{SLOW} WHERE d.id <= 20")  # a tenth: seconds before the deadline
            assert until(lambda: any(cpu_ticks(pid) > 10 for pid in workers())), "more than a worker's start takes"
            os.utime(file)
            error = slow.result().error
            assert error is not None
            assert error.kind == "database_changed"

    def test_the_lock_of_a_writer_is_said_before_the_deadline_and_waited_for(
        self, file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with open_database(file, SCHEMA, QueryLimits(deadline_s=0.5)) as database, ThreadPoolExecutor(4) as threads:
            database.query(FAST)
            writer = sqlite3.connect(file, isolation_level=None)
            writer.execute("BEGIN EXCLUSIVE")
            start = time.perf_counter()
            waiting = [threads.submit(database.query, FAST) for _ in range(4)]
            assert until(lambda: bool(caplog.messages))
            assert time.perf_counter() - start < 0.5 + LATE_S
            assert [(of.done(), text) for of, text in zip(waiting, caplog.messages, strict=False)] == [
                (False, f"The database {file} does not answer; queries are retried for 60 s: database is locked")
            ]
            writer.execute("ROLLBACK")
            assert [of.result().status for of in waiting] == ["ok"] * 4
            assert caplog.messages[1:] == [f"The database {file} answers again."]
            monkeypatch.setattr("sql_agent.database.local.OUTAGE_S", 0.0)
            writer.execute("BEGIN EXCLUSIVE")
            with pytest.raises(DatabaseFileError, match=r"locked \(wait until the other program"):
                database.query(FAST)
            writer.close()

    def test_a_statement_that_waits_for_a_writer_ends_with_its_database(self, file: Path) -> None:
        with (
            contextlib.closing(sqlite3.connect(file, isolation_level=None)) as writer,
            ThreadPoolExecutor(1) as threads,
        ):
            with open_database(file, SCHEMA, QueryLimits(deadline_s=0.5)) as database:
                writer.execute("BEGIN EXCLUSIVE")
                waiting = threads.submit(database.query, FAST)
                time.sleep(1.0)
                start = time.perf_counter()
            with pytest.raises(DatabaseFileError, match="does not answer"):
                waiting.result()
            assert time.perf_counter() - start < LATE_S

    @pytest.mark.parametrize("open_elsewhere", [True, False])
    def test_one_with_a_write_ahead_log_can_be_queried(self, file: Path, open_elsewhere: bool) -> None:
        writer = sqlite3.connect(file, isolation_level=None)
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("UPDATE disease SET overview = 'x' WHERE id = 3")
        if not open_elsewhere:
            writer.close()
        with open_database(file, SCHEMA) as database:
            assert database.query("SELECT overview FROM disease WHERE id = 3").records == (("x",),)
        writer.close()


def test_a_sort_of_more_than_fits_into_memory_writes_no_file(database: Database) -> None:
    written, done = set[str](), threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            for pid in workers():
                written.update(file for file in open_files(pid) if "etilqs" in file)

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert database.query(BREAKING["long texts to sort"]).error is not None
    done.set()
    watcher.join()
    assert not written


@pytest.mark.slow
def test_hints_are_still_written_after_many_large_databases(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "books.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE books (title TEXT, note TEXT)")
        connection.executemany("INSERT INTO books VALUES (?, ?)", [(f"Book {n}", "𠀀" * 10_000) for n in range(1800)])
    required = RequiredSchema(None, hint="-", names={"books": Naming("title")})
    sql = "SELECT note FROM books WHERE title = 'Bok 17'"
    large = "SELECT count(*) FROM (SELECT DISTINCT note || title FROM books)"  # needs 100 MB
    with contextlib.ExitStack() as stack:
        for number in range(7):
            os.utime(path, (number, number))  # a file that has changed is another database
            opened = stack.enter_context(open_database(path, required))
            assert "'Book 17'" in (opened.query(sql).hint or "")
            assert opened.query(large).status == "ok"
        (server,) = levels(os.getpid())[0]
        size = memory_kib(server, "VmSize")
        assert size > 512 * 1024
        with open_database(path, required):
            assert memory_kib(server, "VmSize") == size, "the same file has the same indexes"
    assert not capfd.readouterr().err
