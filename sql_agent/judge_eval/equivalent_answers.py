"""Give reference answers another form that keeps them right, and define what all transformations of answers need.

A transformation takes a `Subject` and a random generator, and returns an answer. It returns None if it does not apply,
or if it should make a false answer but would make a right one. Grading the answers is an invariance test or a
directional test in the sense of CheckList (Ribeiro et al. 2020, arXiv:2005.04118).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from pydantic import TypeAdapter

from sql_agent.schemas import Lang, Question, Record, facts_of

_SEPARATOR: Mapping[Lang, str] = {"en": "; ", "zh": "；"}
_COLON: Mapping[Lang, str] = {"en": ": ", "zh": "："}
_COMMA: Mapping[Lang, str] = {"en": ", ", "zh": "、"}
_PART = re.compile(r"[;；,，、:：\n]|\band\b")


class Wordings(Record):
    """The words of one language that make an answer false; wordings.toml describes each list."""

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

    @property
    def frames(self) -> tuple[str, ...]:
        """All sentence frames that make the fact at "{}" false."""
        return (*self.facts, *self.marks, *self.restrictions)


@cache
def wordings() -> dict[Lang, Wordings]:
    text = Path(__file__).with_name("wordings.toml").read_text("utf-8")
    return TypeAdapter(dict[Lang, Wordings]).validate_python(tomllib.loads(text))


@dataclass(frozen=True)
class Subject:
    """A question, an `other` question with other facts to borrow, and the refusal sentence of the language.

    `names` are all names of the rows that the answer is about.
    """

    question: Question
    other: Question | None = None
    refusal: str | None = None
    names: frozenset[str] = frozenset()

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
        return facts_of(self.other_answer or "")

    @property
    def facts(self) -> list[str]:
        return facts_of(self.answer)

    @property
    def separator(self) -> str:
        return _SEPARATOR[self.lang]

    @property
    def owned(self) -> list[tuple[str, list[str]]] | None:
        """The names before colons, each with its items; None unless every fact has the form "Name: items"."""
        colon, comma = _COLON[self.lang], _COMMA[self.lang]
        pairs = [fact.partition(colon) for fact in self.facts]
        if len(pairs) < 2 or len({name for name, found, _ in pairs if found}) < len(pairs):
            return None
        return [(name, items.split(comma)) for name, _, items in pairs]

    def joined(self, facts: Iterable[str]) -> str:
        return self.separator.join(facts)

    def listed(self, items: Iterable[str]) -> str:
        return _COMMA[self.lang].join(items)

    def of_owners(self, owned: Iterable[tuple[str, Iterable[str]]]) -> str:
        """Return a reference answer with each name in `owned` and its items, such as "A: x, y; B: z"."""
        return self.joined(f"{name}{_COLON[self.lang]}{self.listed(items)}" for name, items in owned)


Transformation = Callable[[Subject, Random], str | None]


def parts_of(answer: str) -> frozenset[str]:
    """Return the smallest parts of an answer, normalised so that the parts of two answers can be compared."""
    return frozenset(part.strip(" .。").casefold() for part in _PART.split(answer) if part.strip(" .。"))


def as_it_is(subject: Subject, _: Random) -> str | None:
    return subject.answer


def another_order(subject: Subject, rng: Random) -> str | None:
    """Shuffle the facts, and the items after each name."""
    if subject.owned:
        owned = [(name, rng.sample(items, len(items))) for name, items in subject.owned]
        return subject.of_owners(rng.sample(owned, len(owned)))
    return subject.joined(rng.sample(subject.facts, len(subject.facts)))


def one_a_line(subject: Subject, _: Random) -> str | None:
    return "\n".join(subject.facts)


def bullets(subject: Subject, rng: Random) -> str | None:
    mark = rng.choice("-*•")
    return "\n".join(f"{mark} {fact}" for fact in subject.facts)


def numbered(subject: Subject, rng: Random) -> str | None:
    mark = rng.choice([".", ")"])
    return "\n".join(f"{number}{mark} {fact}" for number, fact in enumerate(subject.facts, 1))


def capitals(subject: Subject, _: Random) -> str | None:
    return subject.answer.upper()


def full_width(subject: Subject, _: Random) -> str | None:
    """Write Latin letters, digits and signs in full width."""
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in subject.answer)


def comma_list(subject: Subject, _: Random) -> str | None:
    return subject.listed(subject.facts)


def full_stop(subject: Subject, _: Random) -> str | None:
    stop = "." if subject.lang == "en" else "。"
    return f"{subject.answer}{stop}" if not subject.answer.endswith(stop) else None


HARMLESS: tuple[Transformation, ...] = (
    as_it_is, another_order, one_a_line, bullets, numbered, capitals, full_width, comma_list, full_stop,
)  # fmt: skip
