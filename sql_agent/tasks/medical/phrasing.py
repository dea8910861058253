"""Load the wording of formal question templates: phrasings, names of columns, invented names."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from sql_agent.schemas import Lang

PHRASINGS_DIR = Path(__file__).parent / "phrasings"
# Phrasings at the end of each pool that only the test split uses, so that they are never trained on.
HELD_OUT = 2


class Marks(BaseModel):
    """Separators in an answer: between facts, between the items of a fact, and after a name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fact: str
    item: str
    name: str


class Wording(BaseModel):
    """The file `phrasings/LANG.toml` of one language."""

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
    """Read the wording of `lang`."""
    return Wording.model_validate(tomllib.loads((PHRASINGS_DIR / f"{lang}.toml").read_text(encoding="utf-8")))
