"""Answers and facts as comparable tokens: English stems, whole numbers, single Chinese characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

from sql_agent.reward.judges.reference.stems import stem

_MARKDOWN = re.compile(r"[*_`#>|~]+|^\s*[-+•]\s+|^\s*\d{1,2}[.)、](?=\s|\D)", re.MULTILINE)
_LINE_MARKS = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|[-+*•][ \t]+|(?:-{3,}|={3,}|\*{3,})[ \t]*$|```\w*[ \t]*$)+", re.MULTILINE
)
_INLINE_MARKS = re.compile(r"\*\*|__|`+|(?<=\s)\*(?=\S)|(?<=\S)\*(?=\s|$)")
_LIST_NUMBERS = re.compile(r"[①-⒇]|(?:(?<=^)|(?<=[\s;；,，、:：。]))[(（]\d{1,2}[)）]", re.MULTILINE)
_TOKEN = re.compile(r"\d+(?:\.\d+)?|[a-z]+|[㐀-鿿]")
_POSSESSIVE = re.compile(r"(?<=[a-z])['’]s\b")
_NOT = re.compile(r"n['’]t\b")
_NUMBER_WORDS = {"zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
                 "eight": "8", "nine": "9", "ten": "10", "eleven": "11", "twelve": "12"}  # fmt: skip
_CHINESE_COUNT = re.compile(r"([一两二三四五六七八九十])(?=[种个项条类名次周天日岁年月])")
_CHINESE_DIGITS = {"一": "1", "两": "2", "二": "2", "三": "3", "四": "4", "五": "5", "六": "6", "七": "7", "八": "8",
                   "九": "9", "十": "10"}  # fmt: skip


def normalise(text: str) -> str:
    """NFKC, lower case, and without Markdown, so that headers and bullets neither help nor hurt."""
    return _MARKDOWN.sub(" ", unicodedata.normalize("NFKC", _LIST_NUMBERS.sub("; ", text)).casefold())


def plain_text(text: str) -> str:
    """`text` without Markdown's marks, words and case untouched."""
    without_lines = _LINE_MARKS.sub("", text)
    return re.sub(r"\n{2,}", "\n", _INLINE_MARKS.sub("", without_lines)).strip()


def tokens(text: str) -> tuple[str, ...]:
    """The tokens of `text` in order. A number is one token, so 10 is not found in 100; English words are stems."""
    plain = _NOT.sub(" not", _POSSESSIVE.sub("", normalise(text)))
    return tuple(stem(token) if token.isascii() else token for token in _TOKEN.findall(plain))


def with_digits(text: str, *, only: Collection[str] | None = None) -> str:
    """`text` with the small numbers that are written as words, or counted in Chinese, as digits.

    With `only`, no other numbers than these ("2").
    """

    def digit(match: re.Match[str]) -> str:
        number = _NUMBER_WORDS.get(match.group()) or _CHINESE_DIGITS.get(match.group())
        return number if number and (only is None or number in only) else match.group()

    return re.sub(r"[a-z]+", digit, _CHINESE_COUNT.sub(digit, normalise(text)))


def find(needle: Sequence[str], haystack: Sequence[str], start: int = 0) -> int:
    """Where `needle` stands as one run in `haystack` from `start` on, or -1."""
    width, needle = len(needle), tuple(needle)
    for position in range(start, len(haystack) - width + 1):
        if haystack[position] == needle[0] and tuple(haystack[position : position + width]) == needle:
            return position
    return -1


def is_number(token: str) -> bool:
    return token[0].isdigit()


def is_chinese(token: str) -> bool:
    """Whether the token is (of) Chinese characters."""
    return token[0] >= "㐀"
