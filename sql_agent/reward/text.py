"""Answers and facts as comparable tokens: English words, whole numbers, single Chinese characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_MARKDOWN = re.compile(r"[*_`#>|~]+|^\s*[-+•]\s+|^\s*\d{1,2}[.)、](?=\s|\D)", re.MULTILINE)
_TOKEN = re.compile(r"\d+(?:\.\d+)?|[a-z]+|[㐀-鿿]")
_ITEMS = re.compile(r"[;；,，、\n。]|\.\s|\b(?:and|or)\b|和|以及|及|或者?")
_NUMBER_WORDS = {"zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
                 "eight": "8", "nine": "9", "ten": "10"}  # fmt: skip
_CHINESE_COUNT = re.compile(r"([一两二三四五六七八九十])(?=[种个项条类名])")
_CHINESE_DIGITS = {"一": "1", "两": "2", "二": "2", "三": "3", "四": "4", "五": "5", "六": "6", "七": "7", "八": "8",
                   "九": "9", "十": "10"}  # fmt: skip


def normalise(text: str) -> str:
    """NFKC, lower case, and without Markdown, so that headers and bullets neither help nor hurt."""
    return _MARKDOWN.sub(" ", unicodedata.normalize("NFKC", text).casefold())


def tokens(text: str) -> tuple[str, ...]:
    """The tokens of `text` in order. A number is one token, so 10 is not found in 100; plurals lose their s."""
    return tuple(_singular(token) for token in _TOKEN.findall(normalise(text)))


def with_digits(text: str) -> str:
    """`text` with the small numbers that are written as words, or counted in Chinese, as digits."""
    text = _CHINESE_COUNT.sub(lambda match: _CHINESE_DIGITS[match.group(1)], normalise(text))
    return re.sub(r"[a-z]+", lambda match: _NUMBER_WORDS.get(match.group(), match.group()), text)


def items(text: str) -> list[tuple[str, ...]]:
    """The tokens of each item of a list written in prose; items without tokens are left out."""
    return [item for part in _ITEMS.split(normalise(text)) if (item := tokens(part))]


def find(needle: Sequence[str], haystack: Sequence[str], start: int = 0) -> int:
    """Where `needle` stands as one run in `haystack` from `start` on, or -1."""
    width = len(needle)
    for position in range(start, len(haystack) - width + 1):
        if tuple(haystack[position : position + width]) == tuple(needle):
            return position
    return -1


def longest_run(needle: Sequence[str], haystack: Sequence[str]) -> int:
    """The length of the longest run of tokens that both share in order and without a gap."""
    best, ends = 0, [0] * (len(haystack) + 1)
    for token in needle:
        ends = [0] + [ends[i] + 1 if token == other else 0 for i, other in enumerate(haystack)]
        best = max(best, *ends)
    return best


def is_number(token: str) -> bool:
    return token[0].isdigit()


def _singular(token: str) -> str:
    return token[:-1] if len(token) > 3 and token.endswith("s") and not token.endswith("ss") else token
