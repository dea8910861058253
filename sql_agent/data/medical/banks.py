"""How people ask: the phrase banks of each language in `phrasings/LANG/`, plain TOML that a pharmacist can extend."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from sql_agent.data.medical.phrasing import PHRASINGS_DIR
from sql_agent.schemas import Lang

Half = Literal["train", "test"]


class Bank(BaseModel):
    """Base of all parts of a bank: immutable, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Halves(Bank):
    """Wordings for the splits train and val, and others for the split test; none is in both."""

    train: tuple[str, ...]
    test: tuple[str, ...]

    def of(self, half: Half) -> tuple[str, ...]:
        return self.train if half == "train" else self.test


class Asks(Bank):
    """Sentences that ask. `named` hold {name} and are complete; `after` follow a sentence that names the entity."""

    named: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Pool(Bank):
    """The sentences that ask for one thing, by half."""

    train: Asks
    test: Asks

    def of(self, half: Half) -> Asks:
        return self.train if half == "train" else self.test


class Asker(Bank):
    """A person whom a question may be about, and the words that stand for them afterwards."""

    who: str
    they: str
    them: str
    their: str


class Askers(Bank):
    """The people of the questions, by half."""

    train: tuple[Asker, ...]
    test: tuple[Asker, ...]

    def of(self, half: Half) -> tuple[Asker, ...]:
        return self.train if half == "train" else self.test


class Situations(Bank):
    """`situations.toml`: who asks, what happened before the question, and how it begins and ends."""

    askers: Askers
    drugs_info: Halves
    disease: Halves
    openers: Halves
    tails: Halves

    def about(self, table: str) -> Halves:
        """The sentences that name a row of `table`."""
        return self.drugs_info if table == "drugs_info" else self.disease


class Topic(Bank):
    """Something that items may concern: `said` is how people call it, `words` stand in its items; a cell with an item
    that holds one of `doubtful` is not asked about."""

    said: tuple[str, ...]
    words: tuple[str, ...]
    doubtful: tuple[str, ...] = ()


class TopicAsks(Bank):
    """The topics that a column is asked about, and how; {topic} is one of the topic's `said`."""

    topics: tuple[str, ...]
    train: Asks
    test: Asks


class Topics(Bank):
    """`topics.toml`: topics by name, and the questions about a topic by table and column."""

    topics: dict[str, Topic]
    asks: dict[str, dict[str, TopicAsks]]


class Predicates(Bank):
    """What is said of rows whose column holds {keyword}, and of rows whose column does not."""

    holds: Halves
    lacks: Halves


class Lacking(Bank):
    """Questions that no column answers; a row whose description holds `word` is not asked."""

    word: str
    train: Asks
    test: Asks


class Names(Bank):
    """How names are shortened, misspelt, and introduced as another name of the same thing."""

    prefixes: tuple[str, ...]
    suffixes: tuple[str, ...]
    confused: tuple[str, ...]
    also_called: tuple[str, ...]


class Patterns(Bank):
    """`patterns.toml`: all questions that are not about one whole cell.

    `said` are everyday words for an item; `clauses` ask for a column inside a longer question ({clause}); `predicates`
    say what rows have in common ({first}, {second}); `yes_no` asks for one {item}; `pools` are the sentences by kind.
    """

    names: Names
    said: dict[str, tuple[str, ...]]
    clauses: dict[str, dict[str, Halves]]
    predicates: dict[str, dict[str, Predicates]]
    yes_no: dict[str, dict[str, Pool]]
    lacking: dict[str, dict[str, Lacking]]
    pools: dict[str, Pool]


class Banks(Bank):
    """All banks of one language; `asks` is by table and column."""

    asks: dict[str, dict[str, Pool]]
    situations: Situations
    topics: Topics
    patterns: Patterns


@cache
def banks(lang: Lang) -> Banks:
    """Return the phrase banks of `lang`, read from its TOML files."""
    folder = PHRASINGS_DIR / lang
    return Banks.model_validate(
        {
            "asks": {table: _read(folder / f"asks_{table}.toml") for table in ("drugs_info", "disease")},
            **{name: _read(folder / f"{name}.toml") for name in ("situations", "topics", "patterns")},
        }
    )


def _read(path: Path) -> dict[str, object]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def spoken(banks_of: Banks, item: str) -> tuple[str, ...]:
    """Return the ways in which a question may write `item`: as it stands, and in everyday words."""
    return item, *banks_of.patterns.said.get(item, ())
