"""Say how often the statement that a hint suggests finds rows, and those of the gold answer.

    hint_use.py --db medical.db --questions qa_dataset.jsonl
    hint_use.py --db medical.db --rollouts runs/NAME/rollouts.jsonl

Statements that fail are those of a run's rollouts, or they are made of the gold SQL, as small models fail: a word of a
text looked up as a name, the wrong column or table, words of the question beside the name or the word, a misspelt name,
a second condition that no row meets. Those that find their rows all the same are left out. Then the first statement of
the hint is run. It finds the gold rows if it reads an item of the question's evidence (`database/provenance.py`).
Milliseconds are those of the failing statement with its hint. It needs no model.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.table import Table

from sql_agent.database import Database, open_database
from sql_agent.database.hints import suggested_statements
from sql_agent.database.provenance import evidence_read
from sql_agent.questions.question_files import load_questions
from sql_agent.schemas import QueryAnswer, QueryCall, Question
from sql_agent.tasks.medical.tables import SCHEMA

NAMES = {table: naming.column for table, naming in SCHEMA.names.items()}
BY_NAME = re.compile(r"SELECT (?P<column>\w+) FROM (?P<table>\w+) WHERE \w+_name (?:=|LIKE) '%?(?P<name>[^'%]+)%?'")
BY_WORD = re.compile(r"SELECT (?P<output>\S+) FROM (?P<table>\w+) WHERE (?P<column>\w+) LIKE '%(?P<word>[^'%]+)%'")
TWO_WORDS = re.compile(rf"{BY_WORD.pattern} AND (?P<other>\w+ (?:NOT )?LIKE '%[^'%]+%')")
MOST_BESIDE = 4  # characters beside a name or a word

Failing = tuple[str, str]  # a kind and a statement


class Measured(NamedTuple):
    """A hint's length, the milliseconds of its statement, and what each suggested statement finds and reads."""

    characters: int
    spent_ms: float
    finds: list[bool]
    read: list[bool]


def main() -> None:
    """Read the questions, run the statements and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", required=True)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--questions", type=Path, help="a file of `sql-agent data questions`")
    source.add_argument("--rollouts", type=Path, help="the rollouts of a run over the same database")
    parser.add_argument("--count", type=int, default=100, help="statements of each kind (default: 100)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    table = Table("what fails", "n", "with statement", "finds rows", "gold rows", "in either", "ms", "characters")
    with open_database(arguments.db, SCHEMA) as database:
        columns = {
            table: [c for c in database.schema.columns[table] if c not in {"id", NAMES[table]}] for table in NAMES
        }
        found: dict[str, list[Measured]] = defaultdict(list)
        if arguments.rollouts:
            failed = failed_in(arguments.rollouts)
            rng.shuffle(failed)
        else:
            questions = load_questions(arguments.questions)
            asked = [each for each in questions if each.evidence and "COUNT" not in each.statements[-1]]
            rng.shuffle(asked)
            failed = [(each, failure) for each in asked for failure in failing(each, columns, rng)]
        for question, (kind, sql) in failed:
            if len(found[kind]) < arguments.count and (measured := measure(database, question, sql)):
                found[kind].append(measured)
    every = [each for kind in found.values() for each in kind]
    for kind, measures in (*sorted(found.items()), ("all", every)):
        table.add_row(kind, *shown(measures))
    Console(width=120).print(table)


def failed_in(rollouts: Path) -> list[tuple[Question, Failing]]:
    """Return each statement of a run that found nothing with its question; questions without evidence are left out."""
    found: dict[tuple[str, str], tuple[Question, Failing]] = {}
    with rollouts.open(encoding="utf-8") as lines:
        for record in (json.loads(line)["record"] for line in lines):
            question = Question.model_validate(record["question"])
            for call in (QueryCall.model_validate(call) for call in record["calls"]):
                answer = call.answer
                if answer.error is not None and answer.error.kind == "unknown_column":
                    kind = "unknown column"
                elif answer.error is None and not _finds(answer):
                    many = "several conditions" if " AND " in call.sql else "one condition"
                    kind = "empty cell" if answer.records else f"no row, {many}"
                else:
                    continue
                if question.evidence and question.database is None:
                    found[question.question, call.sql] = question, (kind, call.sql)
    return [found[each] for each in sorted(found)]


def failing(question: Question, columns: dict[str, list[str]], rng: random.Random) -> Iterator[Failing]:
    """Yield statements that are like the last one of the gold SQL and mistaken."""
    sql, text = question.statements[-1], question.question
    if match := BY_NAME.fullmatch(sql):
        column, table, name = match.groups()
        (other,) = NAMES.keys() - {table}
        yield "wrong column, empty in the row", sql.replace(column, rng.choice(columns[table]), 1)
        yield "wrong table", f"SELECT {rng.choice(columns[other])} FROM {other} WHERE {NAMES[other]} = '{name}'"
        yield from (("misspelt name", sql.replace(name, typo)) for typo in misspelt(name, rng))
        yield from (("name with words beside it", sql.replace(name, longer)) for longer in beside(name, text, rng))
        condition = f"{rng.choice(columns[table])} LIKE '%{text[:MOST_BESIDE]}%'"
        yield "name and a condition that no row meets", f"{sql} AND {condition}"
    elif match := BY_WORD.fullmatch(sql):
        output, table, column, word = match.groups()
        for read, kind in ((column, "its"), (rng.choice(columns[table]), "another")):
            as_name = f"SELECT {read} FROM {table} WHERE {NAMES[table]} = '{word}'"
            yield f"word taken for a name, {kind} column", as_name
        yield "word in the wrong column", sql.replace(f"WHERE {column}", f"WHERE {rng.choice(columns[table])}")
        yield "word as the whole cell", f"SELECT {output} FROM {table} WHERE {column} = '{word}'"
        yield from (("word with words beside it", sql.replace(word, longer)) for longer in beside(word, text, rng))
    elif match := TWO_WORDS.fullmatch(sql):
        longer = beside(match["word"], text, rng)
        yield from (("one of two conditions fails", sql.replace(match["word"], each)) for each in longer)


def beside(part: str, text: str, rng: random.Random) -> list[str]:
    """Return `part` with a few characters that stand before or behind it in the question."""
    start = text.find(part)
    if start < 0:
        return []
    size, end = rng.randint(1, MOST_BESIDE), start + len(part)
    cut = rng.choice([text[max(0, start - size) : end], text[start : end + size]])
    return [cut] if cut != part and "'" not in cut and "%" not in cut else []


def misspelt(name: str, rng: random.Random) -> list[str]:
    """Return the name with two characters exchanged."""
    if len(name) < 4:
        return []
    at = rng.randrange(1, len(name) - 1)
    typo = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    return [typo] if typo != name else []


def measure(database: Database, question: Question, sql: str) -> Measured | None:
    """Run a statement and those that its hint suggests; None if the statement finds something."""
    started = time.perf_counter()
    answer = database.query(sql)
    spent_ms = 1e3 * (time.perf_counter() - started)
    if _finds(answer):
        return None
    hint = answer.error.hint if answer.error else answer.hint
    statements = suggested_statements(hint)
    answers = [database.query(statement) for statement in statements]
    read = [reads_evidence(database, question, *each) for each in zip(statements, answers, strict=True)]
    return Measured(len(hint or ""), spent_ms, [_finds(each) for each in answers], read)


def _finds(answer: QueryAnswer) -> bool:
    return any(cell for row in answer.records for cell in row)


def reads_evidence(database: Database, question: Question, sql: str, answer: QueryAnswer) -> bool:
    """Return whether a statement reads an item of the question's evidence."""
    call = QueryCall(sql=sql, answer=answer, seconds=0.0)
    gold, names = question.statements, SCHEMA.names
    return bool(evidence_read(database, [call], question.evidence, None, gold, names))


def shown(measures: Sequence[Measured]) -> list[str]:
    """Return the cells of a row of the table."""
    shares = [
        statistics.mean(bool(each.read) for each in measures),
        statistics.mean(each.finds[:1] == [True] for each in measures),
        statistics.mean(each.read[:1] == [True] for each in measures),
        statistics.mean(any(each.read) for each in measures),
    ]
    spent_ms = statistics.median(each.spent_ms for each in measures)
    length = statistics.mean(each.characters for each in measures)
    return [str(len(measures)), *(f"{share:.1%}" for share in shares), f"{spent_ms:.1f}", f"{length:.0f}"]


if __name__ == "__main__":
    main()
