"""Send random statements to a database and look for one that got through: fuzz_guard.py sqlite|mysql [--count N].

A statement got through when its answer holds the content of the table that may not be read, when the tables have
changed, when it outlived its deadline, or when its answer is no answer. MySQL is the server that the tests use.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from sql_agent.database import open_database
from sql_agent.database.answers import KINDS
from sql_agent.schemas import QueryLimits
from sql_agent.tasks.medical.tables import SCHEMA
from tests.support.fuzzed_statements import fuzzed
from tests.support.mariadb import administrator, copied_to_server
from tests.support.small_database import CANARY, make_database

LIMITS = QueryLimits(deadline_s=1.0, max_rows=1000, max_chars=100_000)
LATE_S = 1.0  # on a busy machine, for the pool to answer


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


def main() -> None:
    """Run the statements and print how many were answered, refused by kind, and through."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=["sqlite", "mysql"])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    verdicts: Counter[str] = Counter()
    through: list[str] = []
    started = time.perf_counter()
    with target(arguments.engine) as (source, content):
        before = content()
        with open_database(source, SCHEMA, LIMITS) as database, ThreadPoolExecutor(4) as threads:

            def run(sql: str) -> tuple[str, str, bool]:
                start = time.perf_counter()
                answer = database.query(sql)
                verdict = answer.error.kind if answer.error else "ok"
                late = time.perf_counter() - start > LIMITS.deadline_s + LATE_S
                leaked = CANARY in str(answer.model_dump(exclude={"error"})) and CANARY not in sql
                return sql, verdict, leaked or late or (verdict != "ok" and verdict not in KINDS)

            for sql, verdict, got_through in threads.map(run, fuzzed(arguments.count, arguments.seed)):
                verdicts[verdict] += 1
                if got_through:
                    through.append(sql)
        changed = content() != before
    print(f"{arguments.engine}: {arguments.count} statements in {time.perf_counter() - started:.0f} s")
    print(", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common()))
    print(f"through: {len(through)}; tables changed: {changed}")
    for sql in through[:20]:
        print(repr(sql))
    raise SystemExit(1 if through or changed else 0)


if __name__ == "__main__":
    main()
