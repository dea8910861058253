"""Make labels from identifiers, form plurals, and choose the wordings of questions."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from sql_agent.schemas import Lang

_LEAST = 5  # minimum number of wordings of which some are held out for the split test
_T = TypeVar("_T")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PREPOSITIONS = {"by", "to", "in", "of", "for", "at", "on", "from", "with"}
_AN = re.compile(r"(?:[aeio]|u(?!ni|se|ti|ro)|hour|honou?r)", re.IGNORECASE)


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files("sql_agent.tasks.described").joinpath("wordings", f"{name}.toml").read_text("utf-8"))


_WORDS = _read("identifiers")
_SHORT: Mapping[str, str] = _WORDS["short"]
_UNITS, _SAME, _PLURALS = (_WORDS[key] for key in ("units", "same", "plurals"))
_SINGULARS = {plural: singular for singular, plural in _PLURALS.items()} | _WORDS["singulars"]
_PERSON = re.compile(rf"\b(?:{'|'.join(_WORDS['persons'])})s?$|[人者员生师户手]$", re.IGNORECASE)


def label_of(identifier: str, owner: str = "") -> str:
    """Return the words of an identifier, without the table `owner` before them: "name" for customerName of customer."""
    if known := _SHORT.get(identifier.casefold()):  # LName is no "l name"
        return known
    spaced = " ".join(_CAMEL.sub(" ", identifier.replace("_", " ").replace("-", " ")).split())
    if spaced.casefold() == "long":  # but "long title"
        return "longitude"
    words = [_SHORT.get(word.casefold(), word.lower() if word.isascii() else word) for word in spaced.split()]
    prefix = owner.split()
    if len(words) > len(prefix) and words[: len(prefix)] == prefix:
        words = words[len(prefix) :]
    return " ".join(words) or identifier


def unit_of(identifier: str) -> str:
    """Return the unit at the end of a number's column name: "kg" for weight_kg; "" without one."""
    last = re.split(r"[_\s(（]", identifier.rstrip(")）"))[-1]
    return _UNITS.get(last.casefold(), "") if last != identifier else ""


def plural_of(label: str) -> str:
    """Return the plural of an English noun phrase, whose noun is the last word, or the last word before "of"."""
    noun, of, rest = label.partition(" of ")
    if of:
        return f"{plural_of(noun)}{of}{rest}"
    before, _, word = label.rpartition(" ")
    if not word.isascii() or word in _SAME or word in _PREPOSITIONS or singular_of(word) != word:
        return label if word != "address" else f"{before} addresses".strip()
    if re.search(r"[^aeiou]y$", word):
        word = f"{word[:-1]}ies"
    else:
        word = _PLURALS.get(word) or word + ("es" if re.search(r"(?:s|x|z|ch|sh)$", word) else "s")
    return f"{before} {word}".strip()


def singular_of(label: str) -> str:
    """Return the singular of an English noun phrase, such as "order item" for "order items"."""
    before, _, word = label.rpartition(" ")
    if word in _SINGULARS:
        word = _SINGULARS[word]
    elif word not in _SAME and not re.search(r"(?:ss|us|is)$", word):
        word = re.sub(r"ies$", "y", word) if re.search(r"[^aeiou]ies$", word) else _without_s(word)
    return f"{before} {word}".strip()


def is_verb(label: str) -> bool:
    """Return whether a flag's label begins with a verb, such as "accepts patients"; other labels are adjectives."""
    first, _, rest = label.partition(" ")
    return bool(rest) and first.isascii() and first.endswith("s") and not first.endswith("ss")


def is_noun(label: str) -> bool:
    """Return whether a table's label is a noun for its rows, such as "order item", but not "lives in" or "has pet"."""
    words = label.split()
    return words[0] not in {"has", "have"} and words[-1] not in _PREPOSITIONS


def is_person(label: str) -> bool:
    """Return whether the rows of a table with this label are persons."""
    return _PERSON.search(label) is not None


def with_article(label: str) -> str:
    """Return "a price" or "an age"."""
    return f"{'an' if _AN.match(label) else 'a'} {label}"


def _without_s(word: str) -> str:
    return word[:-2] if re.search(r"(?:sses|xes|ches|shes)$", word) else word.removesuffix("s")


@cache
def wordings(lang: Lang) -> Mapping[str, Any]:
    """Return the wordings of a language, such as sentences by type of question, and phrases for conditions."""
    return _read(lang)


def filled(template: str, **slots: str) -> str:
    """Return a wording with its slots filled. Braces inside the text of a slot are no slots."""
    return re.sub(r"\{(\w+)\}", lambda match: slots.get(match[1], match[0]), template)


@dataclass(frozen=True)
class Wording:
    """The ways to ask a question.

    A slot of a template has one text in `slots`, or alternative texts in `phrases`, which may contain slots again.
    """

    templates: tuple[str, ...]
    slots: Mapping[str, str]
    phrases: Mapping[str, tuple[str, ...]]

    def say(self, chosen: random.Random, *, held_out: bool, **slots: str) -> str:
        """Return a random text. `held_out` is whether the split is test; `slots` override the wording's slots."""
        template = chosen.choice(half(self.templates, held_out=held_out))
        phrases = {slot: chosen.choice(half(ways, held_out=held_out)) for slot, ways in self.phrases.items()}
        text = filled(filled(template, **phrases), **{**self.slots, **slots})
        begins_with_a_word = template.startswith("{") and not template.startswith("{name}")
        return text[:1].upper() + text[1:] if begins_with_a_word else text


def half(wordings: Sequence[_T], *, held_out: bool) -> Sequence[_T]:
    """Return the last fifth of the wordings if `held_out`, else the others; return all of a short list."""
    if len(wordings) < _LEAST:
        return wordings
    place = len(wordings) - len(wordings) // _LEAST
    return wordings[place:] if held_out else wordings[:place]
