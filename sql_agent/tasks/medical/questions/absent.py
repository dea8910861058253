"""Whether a cell clearly lacks something, in whatever words it could say it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sql_agent.database.schema import fold
from sql_agent.tasks.medical.banks import spoken
from sql_agent.tasks.medical.questions.draft import Corpus
from sql_agent.tasks.medical.questions.topics import TopicReader

_WORD = re.compile(r"[a-z]{4,}|[一-鿿]")


def clearly_absent(source: Corpus, readers: Iterable[TopicReader], item: str, items: Iterable[str]) -> bool:
    """Return whether none of `items` shares a word, or in Chinese a character, or a topic with `item`.

    Both are compared in all the ways in which people say them: 大汗 is not clear of 多汗, which is 出汗 too.
    """
    held = list(items)
    words = _words(source, item)
    if any(words & _words(source, other) for other in held):
        return False
    return all(reader.about(held) == [] for reader in readers if reader.concerns(item))


def _words(source: Corpus, item: str) -> set[str]:
    return set(_WORD.findall(fold(" ".join(spoken(source.natural, item)))))
