"""Measure how long a fast query takes beside slow ones, through the tool of one runner: fast_beside_slow.py DB.

Beside it the same query goes to a bare connection in a process of its own, in turn, so that what a busy machine or the
database's server costs can be told from what the tool costs.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import platform
import sqlite3
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from sql_agent.agent.tools import QueryTool
from sql_agent.database import Database, open_database, parse_source
from sql_agent.database.mysql.connection import connect_to
from sql_agent.tasks.medical.tables import SCHEMA

FAST = "SELECT med_name, indication FROM drugs_info WHERE id = {number}"
# Joins without a condition: each keeps a core busy until its deadline.
SLOW = (
    "SELECT count(*) FROM drugs_info a, drugs_info b, drugs_info c, disease d, disease e WHERE a.id + b.id > {number}"
)


def answer_bare(ours: Connection, source: str) -> None:
    """Run what comes on `ours` on a connection without a guard or limits, and say when it is done."""
    run = _bare(source)
    while (sql := ours.recv()) is not None:
        ours.send(run(sql))


def _bare(source: str) -> Callable[[str], object]:
    place = parse_source(source)
    if isinstance(place, Path):
        file = sqlite3.connect(f"{place.absolute().as_uri()}?mode=ro", uri=True)
        return lambda sql: file.execute(sql).fetchall()
    cursor = connect_to(place).cursor()
    return lambda sql: (cursor.execute(sql), cursor.fetchall())[1]


async def measure(database: Database, bare: Connection, slow: int, count: int) -> tuple[list[float], list[float]]:
    """Return the seconds of `count` fast queries of the tool and of `bare`, in turn, while `slow` slow ones run."""
    tool = QueryTool(database)
    over = asyncio.Event()

    async def keep_busy(number: int) -> None:
        while not over.is_set():
            await QueryTool(database)(SLOW.format(number=number))

    busy = [asyncio.create_task(keep_busy(number)) for number in range(slow)]
    await asyncio.sleep(0.5 if slow else 0)
    ours, theirs = [], []
    for number in range(count):
        sql = FAST.format(number=1 + number % 40)
        start = time.perf_counter()
        await tool(sql)
        ours.append(time.perf_counter() - start)
        await asyncio.sleep(0.005)  # a model thinks between two queries
        start = time.perf_counter()
        bare.send(sql)
        bare.recv()
        theirs.append(time.perf_counter() - start)
        await asyncio.sleep(0.005)
    over.set()
    await asyncio.gather(*busy)
    return ours, theirs


def _row(seconds: list[float]) -> tuple[float, float, float]:
    return statistics.median(seconds), statistics.quantiles(seconds, n=100)[98], max(seconds)


async def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", help="path of a SQLite file, or mysql+pymysql://…")
    parser.add_argument("--count", type=int, default=500, help="fast queries for each row of the table")
    parser.add_argument("--slow", type=int, nargs="+", default=[0, 4, 16, 32], help="slow ones beside them")
    arguments = parser.parse_args()
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    peer = multiprocessing.get_context("spawn").Process(target=answer_bare, args=(theirs, arguments.database))
    peer.start()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{'':9} {'tool, ms':>26} {'bare connection, ms':>26} {'ratio':>12}")
    print(f"{'slow ones':>9}" + f" {'p50':>8} {'p99':>8} {'worst':>8}" * 2 + f" {'p50':>5} {'p99':>6}")
    with open_database(arguments.database, SCHEMA) as database:
        await QueryTool(database)(FAST.format(number=1))
        ours.send(FAST.format(number=1))
        ours.recv()
        for slow in arguments.slow:
            tool, bare = map(_row, await measure(database, ours, slow, arguments.count))
            shown = "".join(f" {second * 1000:8.1f}" for second in (*tool, *bare))
            print(f"{slow:9}{shown} {tool[0] / bare[0]:5.1f} {tool[1] / bare[1]:6.1f}", flush=True)
    ours.send(None)
    peer.join()


if __name__ == "__main__":
    asyncio.run(main())
