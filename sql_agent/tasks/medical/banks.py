"""Load the phrase banks in `phrasings/LANG/`: natural wordings of questions, as TOML that a pharmacist can extend."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from sql_agent.questions.rewrite_checks import Half
from sql_agent.schemas import Lang
from sql_agent.tasks.medical.phrasing import PHRASINGS_DIR

T = TypeVar("T")


class Bank(BaseModel):
    """Base of all parts of a bank: immutable, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Halves(Bank, Generic[T]):
    """Wordings of the splits train and val, and those of the split test; no wording is in both."""

    train: T
    test: T

    def of(self, half: Half) -> T:
        return self.train if half == "train" else self.test


Wordings = Halves[tuple[str, ...]]


class Asks(Bank):
    """Questions. `named` contain {name} and are complete; `after` follow a sentence that names the entity."""

    named: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Asker(Bank):
    """A person whom a question may be about, and the pronouns for this person."""

    who: str
    they: str
    them: str
    their: str


class Situations(Bank):
    """`situations.toml`: who asks and why, openers and endings of questions, and how to ask for everything."""

    askers: Halves[tuple[Asker, ...]]
    drugs_info: Wordings
    disease: Wordings
    openers: Wordings
    tails: Wordings
    everything: Wordings

    def about(self, table: str) -> Wordings:
        """Return the sentences that name a row of `table`."""
        return self.drugs_info if table == "drugs_info" else self.disease


class Topic(Bank):
    """A subject of items: `said` are its names, `words` mark an item as belonging to it.

    No question is asked about a cell with an item that contains one of `doubtful` but none of `words`.
    """

    said: tuple[str, ...]
    words: tuple[str, ...]
    doubtful: tuple[str, ...] = ()


class TopicAsks(Halves[Asks]):
    """The topics of a column and the questions about them; {topic} is one of the topic's `said`.

    `own` are questions for one topic that need not name it: "can I drink with {name}?"
    """

    topics: tuple[str, ...]
    own: dict[str, Halves[Asks]] = {}

    def about(self, topic: str, half: Half) -> tuple[Asks, ...]:
        """Return the ways to ask for one topic: those of all topics, and its own."""
        own = self.own.get(topic)
        return (self.of(half), own.of(half)) if own else (self.of(half),)


class Topics(Bank):
    """`topics.toml`: topics by name, how two of them are joined, and the questions about topics by table and column."""

    both: tuple[str, ...]
    topics: dict[str, Topic]
    asks: dict[str, dict[str, TopicAsks]]


class Predicates(Bank):
    """Predicates for rows whose column contains {keyword}, and for rows whose column does not."""

    holds: Wordings
    lacks: Wordings


class Kind(Topic):
    """A kind of items: an item belongs to it if it contains one of `words`, or names a row of the table `named_in`.

    `outside` are words of items that do not belong to it. If there are any, an item with neither is doubtful, so that
    questions may ask for all other items by their names, `rest`.
    """

    outside: tuple[str, ...] = ()
    named_in: str | None = None
    rest: tuple[str, ...] = ()


class KindAsks(Bank):
    """The kinds of items in a column; `patterns.toml` has questions for every kind.

    `own` are questions for one kind that need not name it ("is there an operation for {name}?"), `own_rest` for all
    other items ("how is {name} treated without drugs?").
    """

    kinds: tuple[str, ...]
    own: dict[str, Halves[Asks]] = {}
    own_rest: dict[str, Halves[Asks]] = {}


class Position(Bank):
    """The first `count` items of a cell, or the last ones if `count` is negative; `said` are names for them."""

    count: int
    said: tuple[str, ...]


class Kinds(Bank):
    """`kinds.toml`: kinds of items by name, which of them each column is asked for, and places in a list."""

    kinds: dict[str, Kind]
    asks: dict[str, dict[str, KindAsks]]
    positions: tuple[Position, ...]


class Claim(Halves[Asks]):
    """A yes-no question that the words of the cells in `columns` answer.

    `opposite` asks the negated question: its yes is the others' no. `rows` are predicates for rows for which the claim
    is true, and for the others.

    `yes`, `no` and `doubtful` are words in the cells; `aside` are words with another meaning, which are ignored. With
    `subjects`, {item} is one of them and only statements about its words count; a column of `mentioned_in` says yes by
    naming them. `yes_wins` is for cells that list several things. Where silence means no, the question must ask what is
    written or listed, not what is safe.
    """

    columns: tuple[str, ...]
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    subjects: dict[str, tuple[str, ...]] = {}
    mentioned_in: tuple[str, ...] = ()
    yes_wins: bool = False
    silence_means_no: bool = False
    opposite: Halves[Asks] | None = None
    rows: Predicates | None = None


Claims = dict[str, dict[str, Claim]]


class Lacking(Halves[Asks]):
    """Questions that no column answers; rows whose description contains `word` are skipped."""

    word: str


class Stem(Bank):
    """Words glued to an item of a column: `before` and `after` it, and `joined` between two items."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()

    def without_one(self, item: str) -> str | None:
        """Return `item` without the longest word that it ends with, else begins with; None when nothing is left."""
        for word in sorted(self.after, key=len, reverse=True):
            if item.endswith(word) and len(item) > len(word) + 1:
                return item[: -len(word)].strip()
        for word in sorted(self.before, key=len, reverse=True):
            if item.startswith(word) and len(item) > len(word) + 1:
                return item[len(word) :].strip()
        return None


class Searches(Bank):
    """`searches.toml`: how people search for rows by their content.

    `rows` are words for the rows of a table ({rows}); `either` joins two keywords; `lead_ins` say by table why somebody
    asks, without a search term; `stems` are words glued to the items of a column.
    """

    rows: dict[str, tuple[str, ...]]
    either: Wordings
    lead_ins: dict[str, Wordings]
    stems: dict[str, dict[str, Stem]] = {}

    def stem(self, table: str, column: str) -> Stem | None:
        """Return the words glued to the items of a column, or None."""
        return self.stems.get(table, {}).get(column)


class Passing(Bank):
    """`passing.toml`: places, people, reasons and classes of drugs ({kind}) that a question mentions in passing.

    `pairs` precede a question about two rows of a table; `named` are situations that name a drug with its class.
    """

    pairs: dict[str, Wordings]
    named: Wordings


class NameForms(Bank):
    """`names.toml`: other spellings of names.

    `prefixes` and `suffixes` may be left out, and one of a drug's `forms` may be added; `confused` are pairs of
    spellings with a slash between them; `roots` are the words of long Chinese names; `salts_and_forms` may stand
    beside the name of a drug that stays the same drug; `called` are everyday names by table and name in the database.
    """

    prefixes: tuple[str, ...]
    suffixes: tuple[str, ...]
    forms: tuple[str, ...]
    confused: tuple[str, ...]
    roots: tuple[str, ...] = ()
    salts_and_forms: tuple[str, ...]
    called: dict[str, dict[str, tuple[str, ...]]]


class Patterns(Bank):
    """`patterns.toml`: questions that are not about one whole cell.

    `said` are everyday words for an item; `clauses` ask for a column inside a longer question ({clause});
    `predicates` describe what rows have in common ({first}, {second}), `name_predicates` a common part of their names;
    `yes_no` asks about one {item}; `pools` are the sentences by kind.
    """

    said: dict[str, tuple[str, ...]]
    clauses: dict[str, dict[str, Wordings]]
    predicates: dict[str, dict[str, Predicates]]
    name_predicates: dict[str, dict[str, Predicates]]
    yes_no: dict[str, dict[str, Halves[Asks]]]
    lacking: dict[str, dict[str, Lacking]]
    pools: dict[str, Halves[Asks]]

    def said_of(self, table: str, column: str) -> Predicates | None:
        """Return the predicates for a column, which may be the one with the names; None if there are none."""
        return self.predicates[table].get(column) or self.name_predicates[table].get(column)


class Banks(Bank):
    """All banks of one language; `asks` is by table and column, `claims` by table and name."""

    asks: dict[str, dict[str, Halves[Asks]]]
    claims: Claims
    situations: Situations
    topics: Topics
    kinds: Kinds
    patterns: Patterns
    searches: Searches
    passing: Passing
    names: NameForms


@cache
def banks(lang: Lang) -> Banks:
    """Return the phrase banks of `lang`, read from its TOML files."""
    folder = PHRASINGS_DIR / lang
    others = ("claims", "situations", "topics", "kinds", "patterns", "searches", "passing", "names")
    return Banks.model_validate(
        {
            "asks": {table: _read(folder / f"asks_{table}.toml") for table in ("drugs_info", "disease")},
            **{name: _read(folder / f"{name}.toml") for name in others},
        }
    )


def _read(path: Path) -> dict[str, object]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def spoken(banks_of: Banks, item: str) -> tuple[str, ...]:
    """Return how a question may write `item`: unchanged, in everyday words, or by an everyday name."""
    others = list(banks_of.patterns.said.get(item, ()))
    for called in banks_of.names.called.values():
        others += called.get(item, ())
    return tuple(dict.fromkeys((item, *others)))
