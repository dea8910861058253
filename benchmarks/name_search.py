"""Say how often a hint offers the name that was meant, and in how long: name_search.py --db medical.db

Names of the database are written as people write them: by an everyday name, with a typing error, with words of a
sentence before or behind, both at once, and without salt or dosage form. Right means that one of the first three names
that the index offers is the row's, or holds the same stem. The last two rows are sentences that name nothing, and
stems of names that an index lacks, with all names that hold them: there each offer is wrong. Everyday names are those
of the task, so that row says whether the index finds their rows, not how many of the names that people use it
knows. Milliseconds are processor time. It needs no model.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.table import Table

from sql_agent.database.name_index import Found, NameIndex, comparable
from sql_agent.schemas import Lang
from sql_agent.tasks.described.catalog import Catalog
from sql_agent.tasks.described.contents import Row
from sql_agent.tasks.described.description import fitted
from sql_agent.tasks.described.names import OtherNames
from sql_agent.tasks.described.table_rows import read_database
from sql_agent.tasks.medical.medical_task import description
from sql_agent.tasks.medical.tables import SCHEMA

OFFERED = 3
BEFORE = {"zh": ("长期吃", "医生开了", "我妈得了", "刚查出"), "en": ("taking ", "my mum has ", "about ", "prescribed ")}
BEHIND = {"zh": ("怎么办", "好不了", "能喝酒吗", "三年了"), "en": (" daily", " for years", " and wine", " at night")}

# What is searched for, and texts of which a name that is offered must hold one.
Search = tuple[str, Sequence[str]]


def main() -> None:
    """Read the database and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", type=Path, required=True)
    parser.add_argument("--count", type=int, default=300, help="names of each kind (default: 300)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lang", choices=("zh", "en"), default="zh", help="language of the names (default: zh)")
    arguments = parser.parse_args()
    catalog, rng = _catalog(arguments.db, arguments.lang), random.Random(arguments.seed)
    pairs = list(OtherNames(catalog, SCHEMA.names).pairs())
    started = time.process_time()
    index = NameIndex(pairs)
    built_s = time.process_time() - started
    rows = sum(map(len, catalog.rows.values()))
    table = Table("names written", "searches", f"right in the first {OFFERED}", "nothing offered", "ms", "ms, slowest")
    for kind, searches in _kinds(catalog, rng).items():
        table.add_row(kind, *_measured(index, rng.sample(searches, min(len(searches), arguments.count))))
    table.add_row("a name that is not there", *_measured(*_absent(catalog, arguments.count, rng)))
    Console(width=110).print(f"{rows} rows, index built in {built_s:.2f} s of processor time", table)


def _catalog(database: Path, lang: Lang) -> Catalog:
    read = read_database(database, SCHEMA)
    return Catalog(fitted(description(lang), read), read)


def _kinds(catalog: Catalog, rng: random.Random) -> dict[str, list[Search]]:
    others, lang = OtherNames(catalog, SCHEMA.names), catalog.description.lang
    rows = [row for table in catalog.rows for row in catalog.named(table)]
    rng.shuffle(rows)
    del rows[3_000:]
    before, behind = BEFORE[lang], BEHIND[lang]
    plain = [(row, _shortest(others, row)) for row in rows]
    typos = [
        (row, typo)
        for row in rows
        for typo in list(others.misspelt(row.name, rng))[:1]
        if typo.casefold() not in catalog.all_names(row.table)
    ]
    return {
        "by an everyday name": list(_everyday(catalog)),
        "with a typing error": [(typo, [row.name]) for row, typo in typos],
        "words before it": [(rng.choice(before) + row.name, [row.name]) for row in rows],
        "words behind it": [(row.name + rng.choice(behind), [row.name]) for row in rows],
        "words before it and a typing error": [(rng.choice(before) + typo, [row.name]) for row, typo in typos],
        "without salt or form": [(stem, [stem]) for row, stem in plain if stem != row.name],
        "without salt or form, words before it": [
            (rng.choice(before) + stem, [stem]) for row, stem in plain if stem != row.name
        ],
        "no name": [(text, []) for text in _without_names(catalog)],
    }


def _everyday(catalog: Catalog) -> Iterator[Search]:
    """Everyday names that are no names of rows, of formal names that a row has or holds."""
    names = {comparable(row.name) for rows in catalog.rows.values() for row in rows}
    everything = "\n".join(names)
    formal: dict[str, list[str]] = {}
    for known, others in (called for naming in SCHEMA.names.values() for called in naming.called.items()):
        if comparable(known) in everything:
            for other in others:
                formal.setdefault(other, []).append(known)
    yield from ((other, known) for other, known in formal.items() if comparable(other) not in names)


def _absent(catalog: Catalog, count: int, rng: random.Random) -> tuple[NameIndex, list[Search]]:
    """An index that lacks `count` names and all that hold the same stem, and a search for each of these stems."""
    others = OtherNames(catalog, SCHEMA.names)
    rows = [row for table in catalog.rows for row in catalog.named(table)]
    stems = sorted({_shortest(others, row) for row in rng.sample(rows, min(len(rows), count))})
    any_stem = re.compile("|".join(re.escape(comparable(stem)) for stem in stems))
    names = list(others.pairs())
    gone = {name for text, name in names if any_stem.search(comparable(text)) or any_stem.search(comparable(name.text))}
    return NameIndex((text, name) for text, name in names if name not in gone), [(stem, []) for stem in stems]


def _shortest(others: OtherNames, row: Row) -> str:
    return min([row.name, *others.short(row)], key=len)


def _without_names(catalog: Catalog) -> list[str]:
    columns = [column for table in catalog.description.tables.values() for column in table.columns.values()]
    return [text.replace("{name}", "").strip(" ？?。.") for column in columns for text in column.ask]


def _measured(index: NameIndex, searches: Sequence[Search]) -> tuple[str, ...]:
    right = silent = 0
    times = []
    for text, meant in searches:
        started = time.process_time()
        found = index.find(text)
        times.append(1e3 * (time.process_time() - started))
        offered = [comparable(name) for name in _offered(found)]
        right += any(comparable(name) in other for name in meant for other in offered)
        silent += not offered
    total = len(searches)
    if not total:
        return "0", "", "", "", ""
    shown = f"{right / total:.1%}" if any(meant for _, meant in searches) else ""
    return str(total), shown, f"{silent / total:.1%}", f"{sum(times) / total:.1f}", f"{max(times):.0f}"


def _offered(found: Found) -> list[str]:
    """The first names of each part of a hint."""
    parts = (found.exact, found.aliases, found.longer, found.near, found.abbreviated)
    return [name.text for names in parts for name in names[:OFFERED]]


if __name__ == "__main__":
    main()
