"""Say how often a hint offers the name that was meant, and in how long: name_search.py --db medical.db

Names of the database are written as people write them: by an everyday name, with a typing error, with words of a
sentence before or behind, both at once, and without salt or dosage form. Right means that one of the first three names
that the index offers is the row's, or holds the same stem. The last two rows are sentences that name nothing, and
stems of names that an index lacks, with all names that hold them: there each offer is wrong. Everyday names are those
of the phrase banks, so that row says whether the index finds their rows, not how many of the names that people use it
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
from sql_agent.tasks.medical.banks import Banks, banks
from sql_agent.tasks.medical.questions.catalog import Catalog, Entity, read_catalog
from sql_agent.tasks.medical.questions.naming import names_of
from sql_agent.tasks.medical.questions.other_names import OtherNames
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
    arguments = parser.parse_args()
    catalog, rng = read_catalog(arguments.db), random.Random(arguments.seed)
    started = time.process_time()
    index = NameIndex(names_of(catalog))
    built_s = time.process_time() - started
    rows = sum(map(len, catalog.rows.values()))
    table = Table("names written", "searches", f"right in the first {OFFERED}", "nothing offered", "ms", "ms, slowest")
    for kind, searches in _kinds(catalog, rng).items():
        table.add_row(kind, *_measured(index, rng.sample(searches, min(len(searches), arguments.count))))
    table.add_row("a name that is not there", *_measured(*_absent(catalog, arguments.count, rng)))
    Console(width=110).print(f"{rows} rows, index built in {built_s:.2f} s of processor time", table)


def _kinds(catalog: Catalog, rng: random.Random) -> dict[str, list[Search]]:
    natural = banks(catalog.lang)
    others = OtherNames(natural.names, catalog.lang)
    entities = [entity for table in catalog.rows for entity in catalog.askable(table)]
    rng.shuffle(entities)
    del entities[3_000:]
    before, behind = BEFORE[catalog.lang], BEHIND[catalog.lang]
    plain = [(entity, _shortest(others, entity)) for entity in entities]
    typos = [
        (entity, typo)
        for entity in entities
        for typo in list(others.misspelt(entity, rng))[:1]
        if catalog.find(entity.table, typo) is None
    ]
    return {
        "by an everyday name": list(_everyday(catalog)),
        "with a typing error": [(typo, [entity.name]) for entity, typo in typos],
        "words before it": [(rng.choice(before) + entity.name, [entity.name]) for entity in entities],
        "words behind it": [(entity.name + rng.choice(behind), [entity.name]) for entity in entities],
        "words before it and a typing error": [(rng.choice(before) + typo, [entity.name]) for entity, typo in typos],
        "without salt or form": [(stem, [stem]) for entity, stem in plain if stem != entity.name],
        "without salt or form, words before it": [
            (rng.choice(before) + stem, [stem]) for entity, stem in plain if stem != entity.name
        ],
        "no name": [(text, []) for text in _without_names(natural)],
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
    others = OtherNames(banks(catalog.lang).names, catalog.lang)
    entities = [entity for table in catalog.rows for entity in catalog.askable(table)]
    stems = sorted({_shortest(others, entity) for entity in rng.sample(entities, min(len(entities), count))})
    any_stem = re.compile("|".join(re.escape(comparable(stem)) for stem in stems))
    names = list(names_of(catalog))
    gone = {name for text, name in names if any_stem.search(comparable(text)) or any_stem.search(comparable(name.text))}
    return NameIndex((text, name) for text, name in names if name not in gone), [(stem, []) for stem in stems]


def _shortest(others: OtherNames, entity: Entity) -> str:
    return min([entity.name, *others.shortened(entity)], key=len)


def _without_names(natural: Banks) -> list[str]:
    return [
        text.strip("？?。.")
        for columns in natural.asks.values()
        for asks in columns.values()
        for text in asks.train.after
        if "{" not in text
    ]


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
