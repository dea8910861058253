"""Find the questions of a test that a model saw in training, or whose rows it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sql_agent.schemas import Question

PathOf = Callable[[str | None], Path]  # the file of the database that a question names
Row = tuple[Path, str, int]


@dataclass(frozen=True)
class Overlap:
    """Holds the questions of a test that training asked too, and those about rows that training asked about."""

    questions: tuple[Question, ...]
    entities: tuple[Question, ...]

    @property
    def ids(self) -> frozenset[str]:
        """Return the ids of all of them."""
        return frozenset(question.id for question in (*self.questions, *self.entities))


def find_overlap(
    asked: Sequence[Question], asked_in: PathOf, trained: Sequence[Question], trained_in: PathOf
) -> Overlap:
    """Compare the texts of two question sets, and the rows of their evidence where they are of the same file.

    Texts are compared without regard to case and white space. A question without evidence shares no row.
    """
    texts = {_folded(question.question) for question in trained}
    rows = _Rows(trained_in).of(trained)
    test = _Rows(asked_in)
    same = tuple(question for question in asked if _folded(question.question) in texts)
    return Overlap(
        questions=same,
        entities=tuple(q for q in asked if q not in same and test.of([q]) & rows),
    )


class _Rows:
    """Names the rows of evidence by the file of their database, which is looked up once for each name."""

    def __init__(self, path_of: PathOf) -> None:
        self._path_of = path_of
        self._paths: dict[str | None, Path] = {}

    def of(self, questions: Iterable[Question]) -> set[Row]:
        return {
            (self._path(question.database), item.table.casefold(), item.row_id)
            for question in questions
            for item in question.evidence
        }

    def _path(self, name: str | None) -> Path:
        if name not in self._paths:
            self._paths[name] = self._path_of(name).resolve()
        return self._paths[name]


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
