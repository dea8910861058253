"""Load the natural benchmark: questions as people ask them, written by hand about the sample databases."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from sql_agent.config.settings import Settings
from sql_agent.errors import DataError
from sql_agent.questions.question_files import load_questions
from sql_agent.schemas import Lang, Question
from sql_agent.tasks.medical.prepare import sample_path


def natural_questions(lang: Lang) -> list[Question]:
    """Return the questions in `lang`, all about the sample of that language, whatever database a run trains on."""
    name = sample_path(lang).stem
    path = Path(__file__).with_name("natural") / f"{lang}.jsonl"
    return [question.model_copy(update={"database": name}) for question in load_questions(path)]


def named_database(_settings: Settings, name: str) -> Path:
    """Return the file of the sample that a question names. Raises DataError when there is none of that name."""
    samples = {path.stem: path for path in map(sample_path, get_args(Lang))}
    if name not in samples:
        raise DataError(
            f"a question is about the database {name!r}, which is none of {' and '.join(samples)}",
            hint="leave its `database` empty and give the file as database.path",
        )
    return samples[name]
