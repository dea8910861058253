"""Store ratings of answers, and write them as a question file for training."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from filelock import FileLock
from pydantic import ValidationError

from sql_agent.chat.citations import find_citations
from sql_agent.chat.conversation import Answered
from sql_agent.errors import DataError
from sql_agent.questions.question_files import write_jsonl
from sql_agent.schemas import Lang, Question, Record
from sql_agent.system.files import append_line, drop_cut_line, whole_lines
from sql_agent.system.messages import first_problem

Mark = Literal["up", "down", "corrected", "withdrawn"]


class Rating(Record):
    """A person's rating of an answer. `reference` is the correct answer, "" if the rating does not give one.

    `sql` has the queries whose rows together contain the whole reference; it is None if a part is in no row.
    """

    time: str
    model: str
    rating: Mark
    question: str
    lang: Lang
    answer: str
    reference: str
    sql: str | None = None


class RatingsFolder:
    """Appends ratings to `ratings.jsonl` in the folder `path` and updates the question file `questions.jsonl`.

    Stores no users, no addresses and no unrated questions. Several processes may write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def questions(self) -> Path:
        """The question file, which exists once a rating has given a correct answer."""
        return self.path / "questions.jsonl"

    def rate(self, model: str, answered: Answered, mark: Mark, correction: str = "") -> None:
        """Store a rating, which replaces the earlier rating of this model's answer to this question.

        Raises DataError if `mark` needs a correct answer and there is none, or if the folder cannot be written.
        """
        reference = {"up": answered.answer, "corrected": correction.strip()}.get(mark, "")
        if mark == "up" and not reference:
            raise DataError("there is no answer to rate as right", hint="give the right answer as a correction")
        if mark == "corrected" and not reference:
            raise DataError("the correction is empty", hint="write only the facts, separated by ;")
        rating = Rating(
            time=f"{datetime.now(tz=UTC):%Y-%m-%dT%H:%M:%SZ}",
            model=model,
            rating=mark,
            question=answered.question.question,
            lang=answered.question.lang,
            answer=answered.answer,
            reference=reference,
            sql=_statements(reference, answered),
        )
        try:
            self._write(rating)
        except OSError as error:
            raise DataError(
                f"could not write into {self.path}: {error.strerror}", hint="choose another folder with --ratings"
            ) from error

    def _write(self, rating: Rating) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path / ".lock"):
            log = self.path / "ratings.jsonl"
            if log.exists():
                drop_cut_line(log)
            append_line(log, rating.model_dump_json())
            if rows := list(_question_rows(_ratings(log))):
                write_jsonl(self.questions, rows)
            else:
                self.questions.unlink(missing_ok=True)


def _question_rows(ratings: Sequence[Rating]) -> Iterator[tuple[Question, dict[str, str]]]:
    """Yield each question with a known correct answer, and the model, time and mark of the rating that gave the answer.

    Of the ratings of one model's answer, only the last counts. Then the last correction gives the correct answer of a
    question; without a correction, the answer that was rated as right last.
    """
    last: dict[tuple[str, str], Rating] = {}
    for rating in ratings:
        key = (_id(rating.question), rating.model)
        last.pop(key, None)
        last[key] = rating
    known: dict[str, Rating] = {}
    for (question_id, _), rating in last.items():
        before = known.get(question_id)
        if rating.reference and (before is None or (before.rating, rating.rating) != ("corrected", "up")):
            known[question_id] = rating
    for question_id, rating in known.items():
        question = Question(
            id=question_id, question=rating.question, answer=rating.reference, lang=rating.lang, sql=rating.sql
        )
        yield question, {"model": rating.model, "time": rating.time, "rating": rating.rating}


def _statements(reference: str, answered: Answered) -> str | None:
    """Return the queries whose rows contain the whole reference; None if a part of the reference is in no row."""
    sources = find_citations(reference, answered.question.question, answered.calls)
    rest = reference.casefold()
    for source in sorted(sources, key=lambda source: -len(source.text)):
        rest = rest.replace(source.text.casefold(), "")
    if not sources or any(character.isalnum() for character in rest):
        return None
    queries = sorted({source.query for source in sources})
    return "\n;\n".join(answered.calls[query - 1].sql.strip().rstrip(";") for query in queries)


def _id(question: str) -> str:
    return f"chat-{hashlib.sha256(' '.join(question.casefold().split()).encode()).hexdigest()[:12]}"


def _ratings(log: Path) -> list[Rating]:
    ratings = []
    for number, line in enumerate(whole_lines(log), 1):
        try:
            ratings.append(Rating.model_validate_json(line))
        except ValidationError as error:
            problem = f"{log}, line {number} is not a rating: {first_problem(error)}"
            raise DataError(problem, hint="correct or remove the line") from error
    return ratings
