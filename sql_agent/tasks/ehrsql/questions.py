"""Read the questions of EHRSQL, and make up unanswerable questions for the training split, which has too few."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from sql_agent.config.settings import Settings
from sql_agent.database.sqlite.connection import read_only_connection
from sql_agent.questions.question_columns import ColumnMapping
from sql_agent.schemas import Question
from sql_agent.system.files import prompt_file
from sql_agent.tasks.spider import questions as spider
from sql_agent.tasks.spider.folder import default_database

REFUSAL = "null"
UNANSWERABLE, NO_SUCH_PATIENT = "unanswerable", "no_such_patient"

_ANSWERABLE_EACH = 4  # answerable questions for each unanswerable question in training, as in the other splits
_PATIENT = re.compile(r"\b(?:patient|subject|stay|icustay|hadm)(?: id)? #?\d+", re.IGNORECASE)
_TABLE = re.compile(r"\b(?:FROM|JOIN) +([a-z_]+)")
_OF_NO_EVENT = re.compile(r"d_|patients|admissions|icustays")
_SLOT = re.compile(r"\{(\w+)\}")
_ROUNDS = 50  # maximum number of uses of a template


def read_questions(path: Path, mapping: ColumnMapping | None = None) -> list[Question]:
    """Read a file in Spider's format. The gold statement `null` means that the database has no answer.

    A question with this statement has no SQL, the answer `null`, and the type UNANSWERABLE or, if it names a patient,
    NO_SUCH_PATIENT. In EHRSQL, a patient named by an unanswerable question never exists, and a patient named by any
    other question does. The type of any other question is the table of the events that it asks about.
    """
    questions = spider.read_questions(path, mapping, kind=_kind)
    return [q.model_copy(update={"sql": None}) if q.sql == REFUSAL else q for q in questions]


def of_split(settings: Settings, split: str, questions: Sequence[Question]) -> list[Question]:
    """Return the questions of `split` as Spider's task does, with made-up unanswerable questions in training."""
    chosen = spider.of_split(settings, split, questions)
    return [*chosen, *_made_up(settings, chosen)] if split == "train" else chosen


def _kind(question: str, gold: str) -> str:
    if gold == REFUSAL:
        return NO_SUCH_PATIENT if _PATIENT.search(question) else UNANSWERABLE
    tables: list[str] = _TABLE.findall(gold) or [""]
    return next((table for table in tables if not _OF_NO_EVENT.match(table)), tables[0])


def _made_up(settings: Settings, questions: Sequence[Question]) -> Iterator[Question]:
    """Yield unanswerable questions from templates, until a fifth of all questions is unanswerable."""
    answerable = sum(question.sql is not None for question in questions)
    wanted = answerable // _ANSWERABLE_EACH - (len(questions) - answerable)
    values, rng, known = _slot_values(default_database(settings)), random.Random(0), {q.question for q in questions}
    templates = prompt_file(__file__, "unanswerable.txt").splitlines()
    templates = [template for template in templates if values.keys() >= {*_SLOT.findall(template)}]
    name = next((question.database for question in questions), None)
    number = 0
    for template in templates * _ROUNDS:
        text = template.format_map({slot: rng.choice(found) for slot, found in values.items()})
        if number >= wanted:
            return
        if text in known:
            continue
        known.add(text)
        number += 1
        yield Question(id=f"made-up-{number}", question=text, answer=REFUSAL, task_type=UNANSWERABLE, database=name)


def _slot_values(path: Path) -> Mapping[str, Sequence[str]]:
    """Return the sorted values of each slot that has a value in the database."""
    queries = tomllib.loads(prompt_file(__file__, "slots.toml"))
    with closing(read_only_connection(path)) as connection:
        found = {slot: sorted(str(value) for (value,) in connection.execute(sql)) for slot, sql in queries.items()}
    return {slot: values for slot, values in found.items() if values}
