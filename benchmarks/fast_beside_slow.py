"""Measure how long a fast query takes beside slow ones, through the tool of one runner: fast_beside_slow.py DB."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import time

from sql_agent.agent.tools import QueryTool
from sql_agent.data.medical.schema import SCHEMA
from sql_agent.database import Database, open_database

FAST = "SELECT med_name, indication FROM drugs_info WHERE id = {number}"
# Joins without a condition: each keeps a core busy until its deadline.
SLOW = (
    "SELECT count(*) FROM drugs_info a, drugs_info b, drugs_info c, disease d, disease e WHERE a.id + b.id > {number}"
)


async def measure(database: Database, slow: int, count: int) -> list[float]:
    """Return the seconds of `count` fast queries, one after the other, while `slow` slow ones always run."""
    tool = QueryTool(database)
    over = asyncio.Event()

    async def keep_busy(number: int) -> None:
        while not over.is_set():
            await QueryTool(database)(SLOW.format(number=number))

    busy = [asyncio.create_task(keep_busy(number)) for number in range(slow)]
    await asyncio.sleep(0.5 if slow else 0)
    seconds = []
    for number in range(count):
        start = time.perf_counter()
        await tool(FAST.format(number=1 + number % 40))
        seconds.append(time.perf_counter() - start)
        await asyncio.sleep(0.005)  # a model thinks between two queries
    over.set()
    await asyncio.gather(*busy)
    return seconds


async def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", help="path of a SQLite file, or mysql+pymysql://…")
    parser.add_argument("--count", type=int, default=500, help="fast queries for each row of the table")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{'slow ones':>9} {'p50 ms':>8} {'p99 ms':>8} {'worst ms':>9} {'p50 to none':>12}")
    with open_database(arguments.database, SCHEMA) as database:
        await QueryTool(database)(FAST.format(number=1))
        alone = None
        for slow in (0, 4, 16, 32):
            seconds = await measure(database, slow, arguments.count)
            median, p99 = statistics.median(seconds), statistics.quantiles(seconds, n=100)[98]
            alone = alone or median
            print(
                f"{slow:9} {median * 1000:8.1f} {p99 * 1000:8.1f} {max(seconds) * 1000:9.1f} {median / alone:11.1f}x",
                flush=True,
            )


if __name__ == "__main__":
    asyncio.run(main())
