"""Compare the tool with a bare connection on one set of statements: tool_overhead.py DB.

The tool is measured without hints (worker process, guard, limits, JSON) and with them, because a hint asks the database
itself: what it costs are its statements. DB is the path of a SQLite file or mysql+pymysql://…; on a busy machine give
--repeat, and the least median is shown.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import platform
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sql_agent.agent.tools import QueryTool
from sql_agent.database import Database, open_database, parse_source
from sql_agent.database.mysql.connection import connect_to
from sql_agent.tasks.medical.tables import SCHEMA

# What a trained model sends: look-ups by name or id, keyword searches, comparisons, counts, joins, WITH.
TEMPLATES = {
    "by id": "SELECT med_name, indication, dosage FROM drugs_info WHERE id = {drug_id}",
    "drug field": "SELECT adverse_reactions FROM drugs_info WHERE med_name = '{drug}'",
    "disease field": "SELECT treatment, cause FROM disease WHERE disease_name = '{disease}'",
    "keyword": "SELECT med_name, indication FROM drugs_info WHERE indication LIKE '%{disease}%' LIMIT 10",
    "comparison": "SELECT med_name, storage FROM drugs_info WHERE med_name IN ('{drug}', '{other}')",
    # A hint is for a statement that finds nothing: the name inside a phrase, and a name like none.
    "empty, hint": "SELECT storage FROM drugs_info WHERE med_name = 'how to keep {drug} {drug_id}'",
    "empty, no hint": "SELECT storage FROM drugs_info WHERE id = -{drug_id}",
    "nothing near": "SELECT storage FROM drugs_info WHERE med_name = 'zzqx{drug_id}zzqx'",
    "aggregate": "SELECT COUNT(*) FROM drugs_info WHERE form LIKE '%{drug_id}%' AND status IS NOT NULL",
    "join": (
        "SELECT d.disease_name, g.med_name FROM disease d JOIN drugs_info g "
        "ON g.indication LIKE '%' || d.disease_name || '%' WHERE d.id = {disease_id} ORDER BY g.med_name LIMIT 5"
    ),
    "with": (
        "WITH found AS (SELECT disease_name, prognosis FROM disease WHERE overview LIKE '%{disease}%') "
        "SELECT disease_name, prognosis FROM found WHERE prognosis IS NOT NULL ORDER BY 1 LIMIT 20"
    ),
}


Rows = Sequence[Sequence[Any]]
Run = Callable[[str], Rows]  # a statement, without the tool; at most as many rows as the tool's


def bare_connection(source: str, most: int) -> Run:
    """Return what runs a statement on the database at `source` and gives at most `most` rows."""
    place = parse_source(source)
    if isinstance(place, Path):
        file = sqlite3.connect(f"{place.absolute().as_uri()}?mode=ro", uri=True)
        return lambda sql: file.execute(sql).fetchmany(most)
    cursor = connect_to(place).cursor()
    cursor.execute("SET SESSION sql_mode = 'PIPES_AS_CONCAT'")

    def run(sql: str) -> Rows:
        cursor.execute(sql)
        return list(cursor.fetchmany(most))

    return run


def statements(names: Run, rounds: range) -> Iterator[tuple[str, str]]:
    """Yield template name and SQL of distinct statements of each template, with names from the database."""
    drugs = names("SELECT DISTINCT med_name FROM drugs_info WHERE med_name <> '' ORDER BY id LIMIT 5000")
    diseases = names("SELECT DISTINCT disease_name FROM disease WHERE disease_name <> '' ORDER BY id LIMIT 5000")
    for number in rounds:
        values = {
            "drug_id": str(1 + number * 7),
            "disease_id": str(1 + number * 3),
            "drug": _text(drugs[number * 11 % len(drugs)][0]),
            "other": _text(drugs[(number * 13 + 5) % len(drugs)][0]),
            "disease": _text(diseases[number * 5 % len(diseases)][0]),
        }
        for name, template in TEMPLATES.items():
            yield name, template.format(**values)


def _text(value: str) -> str:
    return value.replace("'", "''")


async def measure(
    plain: Database, hinted: Database, bare: Run, rounds: range
) -> dict[str, list[tuple[float, float, float]]]:
    """Return for each statement, by template, milliseconds of the bare connection and the tool on both databases.

    `plain` gives no hints. The three take turns in going first, because what runs second finds warm caches.
    """
    tools = QueryTool(plain), QueryTool(hinted)
    times: dict[str, list[tuple[float, float, float]]] = {name: [] for name in TEMPLATES}
    for tool in tools:
        await tool("SELECT 1")
        await tool("SELECT storage FROM drugs_info WHERE med_name = 'zzqx'")  # reads the names, once for a database
    for number, (name, sql) in enumerate(list(statements(bare, rounds))):
        milliseconds = [0.0, 0.0, 0.0]
        for turn in range(3):
            # Shifted by round, too, because with a multiple of three templates each would have one order.
            which = (number + number // len(TEMPLATES) + turn) % 3
            milliseconds[which] = await _timed_tool(tools[which - 1], sql) if which else _timed_bare(bare, sql)
        times[name].append((milliseconds[0], milliseconds[1], milliseconds[2]))
    return times


async def without_pause(database: Database, rounds: range) -> float:
    """Return the median milliseconds of look-ups by id that follow each other, so that no process falls asleep."""
    tool = QueryTool(database)
    sql = [TEMPLATES["by id"].format(drug_id=1 + number) for number in rounds]
    return statistics.median([await _timed_tool(tool, statement) for statement in sql])


async def _timed_tool(tool: QueryTool, sql: str) -> float:
    start = time.perf_counter()
    await tool(sql)
    spent = (time.perf_counter() - start) * 1000
    if tool.calls[-1].answer.error:
        raise SystemExit(f"refused: {sql}: {tool.calls[-1].answer.error}")
    return spent


def _timed_bare(bare: Run, sql: str) -> float:
    start = time.perf_counter()
    bare(sql)
    return (time.perf_counter() - start) * 1000


def _extra(times: dict[str, list[tuple[float, float, float]]]) -> float:
    every = itertools.chain.from_iterable(times.values())
    return statistics.median(plain - bare for bare, plain, _ in every)


def report(times: dict[str, list[tuple[float, float, float]]]) -> None:
    """Print medians in ms: bare, tool without hints, what it adds (median of the pairs), its ratio, what hints add."""
    print(f"{'statement':14} {'n':>5} {'bare ms':>9} {'tool ms':>9} {'+ ms':>7} {'ratio':>6} {'+ hints ms':>11}")
    everything = list(itertools.chain.from_iterable(times.values()))
    for name, triples in [*times.items(), ("all", everything)]:
        bare, tool, _ = (statistics.median(side) for side in zip(*triples, strict=True))
        extra = statistics.median(plain - without for without, plain, _ in triples)
        hints = statistics.median(hinted - plain for _, plain, hinted in triples)
        print(f"{name:14} {len(triples):5} {bare:9.3f} {tool:9.3f} {extra:7.3f} {tool / bare:6.2f} {hints:11.3f}")


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", help="path of a SQLite file, or mysql+pymysql://…")
    parser.add_argument("--rounds", type=int, default=60, help="distinct statements of each kind")
    parser.add_argument("--repeat", type=int, default=1, help="measurements; the one that adds least is shown")
    arguments = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, sqlglot {version('sqlglot')}; no statement is repeated"
    )
    with (
        open_database(arguments.database, SCHEMA, hinted=False) as plain,
        open_database(arguments.database, SCHEMA) as hinted,
    ):
        bare = bare_connection(arguments.database, plain.limits.max_rows + 1)
        rounds = arguments.rounds
        every = [
            asyncio.run(measure(plain, hinted, bare, range(number * rounds, (number + 1) * rounds)))
            for number in range(arguments.repeat)
        ]
        awake = asyncio.run(without_pause(plain, range(5 * rounds)))
    print("median of what the tool adds, ms:", ", ".join(f"{_extra(times):.2f}" for times in every))
    report(min(every, key=_extra))
    print(f"by id, one call after the other: {awake:.3f} ms each")


if __name__ == "__main__":
    main()
