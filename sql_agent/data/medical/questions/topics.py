"""Which items of a cell concern a topic."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sql_agent.data.medical.banks import Topic
from sql_agent.data.medical.questions.draft import Source
from sql_agent.database.schema import fold

_NOTHING = re.compile(r"(?!)")


class TopicReader:
    """Reads items by the words of one topic."""

    def __init__(self, topic: Topic) -> None:
        self.said = topic.said
        self._words = _any_of(topic.words)
        self._doubtful = _any_of(topic.doubtful)

    def concerns(self, item: str) -> bool:
        """Return whether `item` holds a word of the topic outside its doubtful ones: 肾 does not count in 肾上腺."""
        return bool(self._words.search(self._doubtful.sub(" ", fold(item))))

    def about(self, items: Iterable[str]) -> list[str] | None:
        """Return the items that concern the topic; None when another one may."""
        found: list[str] = []
        for item in items:
            if self.concerns(item):
                found.append(item)
            elif self._doubtful.search(fold(item)):
                return None
        return found


def topic_readers(source: Source) -> dict[str, TopicReader]:
    """Return what reads items by each topic."""
    return {name: TopicReader(topic) for name, topic in source.natural.topics.topics.items()}


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    # The longest word first: it is the one that is taken out.
    longest_first = sorted(map(fold, words), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else _NOTHING
