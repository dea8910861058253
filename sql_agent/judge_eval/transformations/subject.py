"""Define what is transformed: a question with its reference answer, and what a transformation may borrow.

A transformation is a function of a `Subject` and a random generator; it returns an answer, or None where it does not
apply or its answer would be right. Its name is what it does and its docstring says it in a sentence. What a judge pays
for the answers is an invariance or a directional test in the sense of CheckList (Ribeiro et al. 2020,
arXiv:2005.04118).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random

from pydantic import TypeAdapter

from sql_agent.schemas import Lang, Question, Record, facts_of

_SEPARATOR: Mapping[Lang, str] = {"en": "; ", "zh": "；"}
_COLON: Mapping[Lang, str] = {"en": ": ", "zh": "："}
_COMMA: Mapping[Lang, str] = {"en": ", ", "zh": "、"}
_PART = re.compile(r"[;；,，、:：\n]|\band\b")


class Wordings(Record):
    """The words of one language that make an answer false: wordings.toml says what each list is for."""

    statements: tuple[str, ...]
    facts: tuple[str, ...]
    marks: tuple[str, ...]
    verdicts: tuple[str, ...]
    choices: tuple[str, ...]
    restrictions: tuple[str, ...]
    dangers: tuple[str, ...]
    orders: tuple[str, ...]
    wider: tuple[str, ...]
    counted: tuple[str, ...]
    units: tuple[tuple[str, str], ...]
    kinds: tuple[tuple[str, str], ...]
    opposites: tuple[tuple[str, str], ...]


@cache
def wordings() -> dict[Lang, Wordings]:
    """Return what wordings.toml holds, by language."""
    text = files(__package__).joinpath("wordings.toml").read_text(encoding="utf-8")
    return TypeAdapter(dict[Lang, Wordings]).validate_python(tomllib.loads(text))


@dataclass(frozen=True)
class Subject:
    """A question, another one without a fact in common to borrow from, and the refusal sentence of its language."""

    question: Question
    other: Question | None = None
    refusal: str | None = None

    @property
    def lang(self) -> Lang:
        return self.question.lang

    @property
    def answer(self) -> str:
        return self.question.full_answer

    @property
    def words(self) -> Wordings:
        return wordings()[self.lang]

    @property
    def other_answer(self) -> str | None:
        return None if self.other is None else self.other.full_answer

    @property
    def other_facts(self) -> list[str]:
        return [] if self.other is None else facts_of(self.other.full_answer)

    @property
    def facts(self) -> list[str]:
        return facts_of(self.answer)

    @property
    def separator(self) -> str:
        return _SEPARATOR[self.lang]

    @property
    def owned(self) -> list[tuple[str, list[str]]] | None:
        """The names of a comparison with their items, where every fact has the form "Name: items"; else None."""
        colon, comma = _COLON[self.lang], _COMMA[self.lang]
        pairs = [fact.partition(colon) for fact in self.facts]
        if len(pairs) < 2 or len({name for name, found, _ in pairs if found}) < len(pairs):
            return None
        return [(name, items.split(comma)) for name, _, items in pairs]

    def joined(self, facts: Iterable[str]) -> str:
        """Write `facts` as a reference answer does."""
        return self.separator.join(facts)

    def listed(self, items: Iterable[str]) -> str:
        """Write `items` as those of one name."""
        return _COMMA[self.lang].join(items)

    def of_owners(self, owned: Iterable[tuple[str, Iterable[str]]]) -> str:
        """Write names with their items, as a reference answer does."""
        return self.joined(f"{name}{_COLON[self.lang]}{self.listed(items)}" for name, items in owned)


Transformation = Callable[[Subject, Random], str | None]


def parts_of(answer: str) -> frozenset[str]:
    """Return the smallest parts of an answer in one form, to see whether two answers share one."""
    return frozenset(part.strip(" .。").casefold() for part in _PART.split(answer) if part.strip(" .。"))
