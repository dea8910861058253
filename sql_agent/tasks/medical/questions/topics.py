"""Which items of a cell concern a topic or are of a kind."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from sql_agent.database.schema import fold
from sql_agent.tasks.medical.banks import Kind, Topic
from sql_agent.tasks.medical.questions.draft import Corpus

_NOTHING = re.compile(r"(?!)")
# Between two things that stand in one item; not inside a word (波及, 缓和).
_JOINED = re.compile(r"以及|[、/]|(?<![以累涉波危普])及(?!时)|(?<![缓饱中温])和(?![缓胃])|或|与| and | or ")
_INSIDE, _OUTSIDE, _DOUBTFUL = "inside", "outside", "doubtful"


class TopicReader:
    """Reads items by the words of one topic, or of one kind with the `names` that its items may have."""

    def __init__(self, topic: Topic, names: Container[str] = frozenset()) -> None:
        outside = topic.outside if isinstance(topic, Kind) else ()
        self.said = topic.said
        meanings = {_INSIDE: topic.words, _OUTSIDE: outside, _DOUBTFUL: topic.doubtful}
        self._meanings = {fold(word): meaning for meaning, words in meanings.items() for word in words}
        self._words = _any_of(self._meanings)
        self._knows_all = bool(outside)
        self._names = names
        self._read: dict[str, bool | None] = {}

    def concerns(self, item: str) -> bool:
        """Return whether `item` holds a word of the topic outside its doubtful ones: 肾 does not count in 肾上腺."""
        return bool(self._belongs(item))

    def about(self, items: Iterable[str]) -> list[str] | None:
        """Return the items that concern the topic; None when another one may."""
        found: list[str] = []
        for item in items:
            belongs = self._belongs(item)
            if belongs is None:
                return None
            if belongs:
                found.append(item)
        return found

    def _belongs(self, item: str) -> bool | None:
        """Return whether `item` belongs to the topic; None when nobody could say."""
        if item not in self._read:
            self._read[item] = self._decide_all(fold(item))
        return self._read[item]

    def _decide_all(self, item: str) -> bool | None:
        """Decide on an item with all the things that it joins: 肝功能损害以及呕血 is neither inside nor outside."""
        if item in self._names:
            return True
        decided = {self._decide(part) for part in _JOINED.split(item) if part.strip()}
        return decided.pop() if len(decided) == 1 else None

    def _decide(self, item: str) -> bool | None:
        found = {self._meanings[word] for word in self._words.findall(item)}
        inside, outside = _INSIDE in found or item in self._names, _OUTSIDE in found
        if inside != outside:
            return inside
        return None if inside or self._knows_all or _DOUBTFUL in found else False


def topic_readers(source: Corpus) -> dict[str, TopicReader]:
    """Return what reads items by each topic."""
    return {name: TopicReader(topic) for name, topic in source.natural.topics.topics.items()}


def kind_readers(source: Corpus) -> dict[str, TopicReader]:
    """Return what reads items by each kind."""
    names = {table: frozenset(fold(row.name) for row in rows) for table, rows in source.catalog.rows.items()}
    return {
        name: TopicReader(kind, names[kind.named_in] if kind.named_in else frozenset())
        for name, kind in source.natural.kinds.kinds.items()
    }


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    # The longest word first: it decides what the shorter ones in it mean, 肾上腺 before 肾 and 非手术 before 手术.
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else _NOTHING
