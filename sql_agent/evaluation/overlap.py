"""Find test questions that training asked too, or whose evidence rows training asked about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sql_agent.database import Source
from sql_agent.schemas import Question

SourceOf = Callable[[str | None], Source]  # from the name in a question to its database
RowId = tuple[Source, str, int]  # database, table, id of the row


@dataclass(frozen=True)
class Overlap:
    """The test questions that training asked too, and those about rows that training asked about."""

    questions: tuple[Question, ...]
    entities: tuple[Question, ...]

    @property
    def ids(self) -> frozenset[str]:
        """Return the ids of all of them."""
        return frozenset(question.id for question in (*self.questions, *self.entities))


def find_overlap(
    asked: Sequence[Question], asked_in: SourceOf, trained: Sequence[Question], trained_in: SourceOf
) -> Overlap:
    """Compare the texts of two question sets, and the rows of their evidence where they are of the same database.

    A question without evidence shares no row.
    """
    trained_rows = _evidence_rows(trained, cache(trained_in))
    asked_in = cache(asked_in)
    same = asked_in_both(asked, trained)
    return Overlap(
        questions=same,
        entities=tuple(q for q in asked if q not in same and _evidence_rows([q], asked_in) & trained_rows),
    )


def asked_in_both(asked: Sequence[Question], trained: Iterable[Question]) -> tuple[Question, ...]:
    """Return the questions of `asked` that `trained` asks too, whatever their case and white space.

    Equal texts that name different databases are different questions.
    """
    named: defaultdict[str, set[str | None]] = defaultdict(set)
    for question in trained:
        named[_folded(question.question)].add(question.database)

    def is_in_both(question: Question) -> bool:
        databases = named.get(_folded(question.question), set())
        return bool(databases) and (question.database is None or not databases.isdisjoint({question.database, None}))

    return tuple(question for question in asked if is_in_both(question))


def _evidence_rows(questions: Iterable[Question], source_of: SourceOf) -> set[RowId]:
    rows = set()
    for question in questions:
        for item in question.evidence:
            source = source_of(question.database)
            resolved = source.resolve() if isinstance(source, Path) else source
            rows.add((resolved, item.table.casefold(), item.row_id))
    return rows


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
