"""Send random statements to a database and look for one that got through: fuzz_guard.py sqlite|mysql [--count N].

A statement fails when its answer holds the content of the table that may not be read, when it raises, when its answer
is no answer or is later than its deadline, and when a process that runs statements grows above its limit. A late one is
sent again alone at the end, because on a busy machine it may be late by no fault of its own; both numbers are printed.
MySQL is the server that the tests use.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sql_agent.database import Database, open_database
from sql_agent.database.answers import KINDS
from sql_agent.schemas import QueryLimits
from sql_agent.tasks.medical.tables import SCHEMA
from tests.support.fuzzed_statements import fuzzed
from tests.support.mariadb import administrator, copied_to_server
from tests.support.process_tree import descendants
from tests.support.small_database import CANARY, make_database

LIMITS = QueryLimits(deadline_s=1.0, max_rows=1000, max_chars=100_000)
LATE_S = 0.3  # after the deadline
MAX_WORKER_KIB = 512 * 1024
_WATCH_S = 0.2  # between two looks at the memory of the processes


@contextmanager
def target(engine: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield where a small database is, and what tells one content of it from another."""
    with tempfile.TemporaryDirectory() as folder:
        path = make_database(Path(folder) / "medical.db", rows=5)
        if engine == "sqlite":
            yield str(path), lambda: hashlib.sha256(path.read_bytes()).hexdigest()
            return
        with copied_to_server(path) as url, closing(administrator(url.rpartition("/")[2])) as server:

            def content() -> object:
                with server.cursor() as cursor:
                    cursor.execute("CHECKSUM TABLE disease, drugs_info, secrets")
                    tables = cursor.fetchall()
                    cursor.execute("SHOW TABLES")
                    return tables, cursor.fetchall()

            yield url, content


@dataclass
class Report:
    """What happened to a share of the statements."""

    verdicts: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)  # what went wrong and the statement
    late: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    largest_kib: int = 0


def judge(database: Database, sql: str) -> tuple[str, float, str | None]:
    """Run `sql`. Return the verdict, the seconds it took, and what is wrong with the answer, None when nothing is."""
    start = time.perf_counter()
    try:
        answer = database.query(sql)
    except Exception as error:
        return "raised", time.perf_counter() - start, f"raised {error!r}"
    seconds = time.perf_counter() - start
    verdict = answer.error.kind if answer.error else "ok"
    if CANARY in str(answer.model_dump(exclude={"error"})) and CANARY not in sql:
        return verdict, seconds, "leaked"
    return verdict, seconds, None if verdict in {"ok", *KINDS} else f"answered {verdict}"


def watch_memory(report: Report, done: threading.Event) -> None:
    """Note the largest memory of any process below this one until `done` is set."""
    while not done.wait(_WATCH_S):
        for pid in descendants(os.getpid()):
            try:
                status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
            except OSError:  # it has just ended
                continue
            peaks = [int(line.split()[1]) for line in status if line.startswith("VmHWM")]
            report.largest_kib = max(report.largest_kib, *peaks, 0)


def run_share(engine: str, count: int, seed: int) -> Report:
    """Send `count` statements to a database of their own."""
    report, done = Report(), threading.Event()
    watcher = threading.Thread(target=watch_memory, args=(report, done))
    watcher.start()
    try:
        with target(engine) as (source, content):
            before = content()
            with open_database(source, SCHEMA, LIMITS) as database, ThreadPoolExecutor(2) as threads:
                statements = list(fuzzed(count, seed))
                judged = threads.map(lambda sql: judge(database, sql), statements)
                for sql, (verdict, seconds, wrong) in zip(statements, judged, strict=True):
                    report.verdicts[verdict] += 1
                    report.slowest_s = max(report.slowest_s, seconds)
                    if wrong:
                        report.failed.append(f"{wrong}: {sql!r}")
                    if seconds > LIMITS.deadline_s + LATE_S:
                        report.late.append(sql)
                for sql in report.late:
                    _, seconds, _ = judge(database, sql)
                    if seconds > LIMITS.deadline_s + LATE_S:
                        report.failed.append(f"late again, {seconds:.2f} s: {sql!r}")
            if content() != before:
                report.failed.append(f"the tables changed: seed {seed}")
    finally:
        done.set()
        watcher.join()
    if report.largest_kib > MAX_WORKER_KIB:
        report.failed.append(f"a worker took {report.largest_kib} KiB: seed {seed}")
    return report


def main() -> None:
    """Run the statements and print how many were answered, refused by kind, and failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=["sqlite", "mysql"])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="process N takes the statements of seed + N")
    parser.add_argument("--processes", type=int, default=2, help="that send a share of the statements each")
    arguments = parser.parse_args()
    started = time.perf_counter()
    share = -(-arguments.count // arguments.processes)
    with ProcessPoolExecutor(arguments.processes, multiprocessing.get_context("spawn")) as processes:
        seeds = [arguments.seed + number for number in range(arguments.processes)]
        size = len(seeds)
        reports = list(processes.map(run_share, [arguments.engine] * size, [share] * size, seeds))
    verdicts = sum((report.verdicts for report in reports), Counter[str]())
    failed = [failure for report in reports for failure in report.failed]
    print(f"{arguments.engine}: {verdicts.total()} statements in {time.perf_counter() - started:.0f} s")
    print(", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common()))
    print(
        f"slowest {max(report.slowest_s for report in reports):.2f} s, "
        f"late {sum(len(report.late) for report in reports)}, "
        f"largest worker {max(report.largest_kib for report in reports) // 1024} MiB, failed {len(failed)}"
    )
    for failure in failed[:20]:
        print(failure)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
