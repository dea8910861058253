"""Find test questions that are also training questions, or that share evidence rows with training questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sql_agent.database import Source
from sql_agent.schemas import Question

SourceOf = Callable[[str | None], Source]  # returns the database with a given name


@dataclass(frozen=True)
class Overlap:
    """Test questions that are also training questions (`questions`) or share an evidence row with one (`entities`)."""

    questions: tuple[Question, ...]
    entities: tuple[Question, ...]

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(question.id for question in (*self.questions, *self.entities))


def find_overlap(
    asked: Sequence[Question], asked_in: SourceOf, trained: Sequence[Question], trained_in: SourceOf
) -> Overlap:
    """Find questions of `asked` whose text, or an evidence row in the same database, also occurs in `trained`."""
    trained_rows = _evidence_rows(trained, cache(trained_in))
    asked_in = cache(asked_in)
    same = asked_in_both(asked, trained)
    return Overlap(
        questions=same,
        entities=tuple(q for q in asked if q not in same and _evidence_rows([q], asked_in) & trained_rows),
    )


def asked_in_both(asked: Sequence[Question], trained: Iterable[Question]) -> tuple[Question, ...]:
    """Return the questions of `asked` that `trained` contains, ignoring case and white space.

    Equal texts for different databases are different questions.
    """
    named: defaultdict[str, set[str | None]] = defaultdict(set)
    for question in trained:
        named[_folded(question.question)].add(question.database)

    def is_in_both(question: Question) -> bool:
        databases = named.get(_folded(question.question), set())
        return bool(databases) and (question.database is None or not databases.isdisjoint({question.database, None}))

    return tuple(question for question in asked if is_in_both(question))


def _evidence_rows(questions: Iterable[Question], source_of: SourceOf) -> set[tuple[Source, str, int]]:
    """Return database, table and row id of each evidence item of `questions`."""
    rows = set()
    for question in questions:
        for item in question.evidence:
            source = source_of(question.database)
            resolved = source.resolve() if isinstance(source, Path) else source
            rows.add((resolved, item.table.casefold(), item.row_id))
    return rows


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
