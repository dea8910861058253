"""Load the phrase banks `phrasings/LANG/*.toml`: natural wordings of questions, which a pharmacist can extend."""

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
    """Base of all parts of a bank: immutable, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Halves(Bank, Generic[T]):
    """Wordings by half: `train` for the splits train and val, `test` for the split test; the halves are disjoint."""

    train: T
    test: T

    def of(self, half: Half) -> T:
        return self.train if half == "train" else self.test


Wordings = Halves[tuple[str, ...]]


class Asks(Bank):
    """Question texts: `named` contain {name}; `after` follow a sentence that names the entity."""

    named: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Asker(Bank):
    """A person in a question, and the pronouns for this person."""

    who: str
    they: str
    them: str
    their: str


class Situations(Bank):
    """`situations.toml`: who asks and why, openers and endings of questions, and questions for all facts."""

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
    """A topic of items: `said` are its names; an item that contains one of `words` belongs to the topic.

    No question is asked about a cell with an item that contains one of `doubtful` but none of `words`.
    """

    said: tuple[str, ...]
    words: tuple[str, ...]
    doubtful: tuple[str, ...] = ()


class TopicAsks(Halves[Asks]):
    """The topics of a column and the questions about the topics; {topic} becomes one of the topic's `said`.

    `own` are questions about one topic that need not name it: "can I drink with {name}?"
    """

    topics: tuple[str, ...]
    own: dict[str, Halves[Asks]] = {}

    def about(self, topic: str, half: Half) -> tuple[Asks, ...]:
        """Return the questions about one topic: those for all topics, and the topic's own."""
        own = self.own.get(topic)
        return (self.of(half), own.of(half)) if own else (self.of(half),)


class Topics(Bank):
    """`topics.toml`: topics by name, conjunctions of two topics, and questions about topics by table and column."""

    both: tuple[str, ...]
    topics: dict[str, Topic]
    asks: dict[str, dict[str, TopicAsks]]


class Predicates(Bank):
    """Predicates: `holds` for rows whose column contains {keyword}, `lacks` for all other rows."""

    holds: Wordings
    lacks: Wordings


class Kind(Topic):
    """A kind of items: its items contain one of `words`, or name a row of the table `named_in`.

    `outside` are words of items of other kinds. If there are any, an item without a word of either list is doubtful.
    Only then may a question ask for all other items, by their names `rest`.
    """

    outside: tuple[str, ...] = ()
    named_in: str | None = None
    rest: tuple[str, ...] = ()


class KindAsks(Bank):
    """The kinds of items in a column. `patterns.toml` has the questions for all kinds.

    `own` are questions for one kind that need not name it ("is there an operation for {name}?"); `own_rest` are
    questions for all other items ("how is {name} treated without drugs?").
    """

    kinds: tuple[str, ...]
    own: dict[str, Halves[Asks]] = {}
    own_rest: dict[str, Halves[Asks]] = {}


class Position(Bank):
    """The first `count` items of a cell, or the last ones if `count` is negative; `said` are names for them."""

    count: int
    said: tuple[str, ...]


class Kinds(Bank):
    """`kinds.toml`: kinds of items by name, questions for kinds by table and column, and positions in a list."""

    kinds: dict[str, Kind]
    asks: dict[str, dict[str, KindAsks]]
    positions: tuple[Position, ...]


class Claim(Halves[Asks]):
    """A yes-no question whose answer depends on the words in the cells of `columns`.

    opposite          the negated question, with the opposite answer
    rows              predicates for rows with the answer yes, and for rows with the answer no
    yes, no           words in a cell that decide the answer
    doubtful          words in a cell about which no question is asked
    aside             words with another meaning, which are ignored
    subjects          values of {item}, each with its words: only text about these words decides
    mentioned_in      columns in which naming a subject means yes
    yes_wins          whether yes prevails over no, in a cell that lists several things
    silence_means_no  whether a cell without any of the words means no; such a question must ask what is written or
                      listed, not what is safe
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
    """Questions that no column answers; a row is skipped if its description contains `word`."""

    word: str


class Stem(Bank):
    """Words attached to an item of a column: `before` or `after` the item, or `joined` between two items."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()

    def without_one(self, item: str) -> str | None:
        """Return `item` without its longest word of `after` or else `before`; None without such a word."""
        for word in sorted(self.after, key=len, reverse=True):
            if item.endswith(word) and len(item) > len(word) + 1:
                return item[: -len(word)].strip()
        for word in sorted(self.before, key=len, reverse=True):
            if item.startswith(word) and len(item) > len(word) + 1:
                return item[len(word) :].strip()
        return None


class Searches(Bank):
    """`searches.toml`: searches for rows by their content.

    `rows` are words for the rows of a table ({rows}); `either` joins two keywords; `lead_ins` are reasons to ask, by
    table, without a search term; `stems` are words attached to the items of a column.
    """

    rows: dict[str, tuple[str, ...]]
    either: Wordings
    lead_ins: dict[str, Wordings]
    stems: dict[str, dict[str, Stem]] = {}

    def stem(self, table: str, column: str) -> Stem | None:
        """Return the words attached to the items of a column, or None."""
        return self.stems.get(table, {}).get(column)


class Passing(Bank):
    """`passing.toml`: places, people, reasons and drug classes ({kind}) that a question mentions incidentally.

    `pairs` precede a question about two rows of a table; `named` are situations with a drug's name and class.
    """

    pairs: dict[str, Wordings]
    named: Wordings


class NameForms(Bank):
    """`names.toml`: other spellings of names.

    prefixes, suffixes  parts of a name that may be left out
    forms               dosage forms that may be added to a drug's name
    confused            pairs of spellings with a slash between them
    roots               words in long Chinese names
    salts_and_forms     words beside a drug's name that do not make it another drug
    called              everyday names, by table and name in the database
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

    said             everyday words for an item
    clauses          questions for a column inside a longer question ({clause})
    predicates       common content of rows ({first}, {second})
    name_predicates  a common part of row names
    yes_no           questions about one {item}
    pools            sentences by kind
    """

    said: dict[str, tuple[str, ...]]
    clauses: dict[str, dict[str, Wordings]]
    predicates: dict[str, dict[str, Predicates]]
    name_predicates: dict[str, dict[str, Predicates]]
    yes_no: dict[str, dict[str, Halves[Asks]]]
    lacking: dict[str, dict[str, Lacking]]
    pools: dict[str, Halves[Asks]]

    def said_of(self, table: str, column: str) -> Predicates | None:
        """Return the predicates for a column, or None; the column may be the table's name column."""
        return self.predicates[table].get(column) or self.name_predicates[table].get(column)


class Banks(Bank):
    """All phrase banks of one language; `asks` is by table and column, `claims` by table and name."""

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
    """Read the phrase banks of `lang`."""
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
    """Return the forms of `item` in a question: the item itself, everyday words, everyday names."""
    others = list(banks_of.patterns.said.get(item, ()))
    for called in banks_of.names.called.values():
        others += called.get(item, ())
    return tuple(dict.fromkeys((item, *others)))
