"""Load how templates word questions in each language: phrasings, names of columns, invented names."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from sql_agent.schemas import Lang

PHRASINGS_DIR = Path(__file__).parent / "phrasings"
# The last phrasings of each pool are reserved for the test split, so that its wordings are never trained on.
HELD_OUT = 2


class Marks(BaseModel):
    """Punctuation of an answer: between facts, between the items of a fact, and after a name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fact: str
    item: str
    name: str


class Wording(BaseModel):
    """One language's file in `phrasings/`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    no_answer: str
    yes: str
    no: str
    marks: Marks
    rows: dict[str, str]
    meaningless: frozenset[str]
    columns: dict[str, dict[str, list[str]]]
    phrasings: dict[str, list[str]]
    specific: dict[str, dict[str, list[str]]]
    absent: dict[str, list[str]]
    invented_stems: list[str]
    invented_endings: dict[str, list[str]]


@cache
def wording(lang: Lang) -> Wording:
    """Return the wording of `lang`, read from its TOML file."""
    return Wording.model_validate(tomllib.loads((PHRASINGS_DIR / f"{lang}.toml").read_text(encoding="utf-8")))
