"""Split an answer into items and normalise the items, so that different spellings of an item are equal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import cn2an
from text_to_num import text2num

from sql_agent.schemas import Lang, Record

_CJK = "㐀-鿿"
# A minus right before a word and ">" are no bullets, because they change the meaning.
_BULLET = re.compile(r"^[ \t]*(?:[-*–—][ \t]+|[•·‣◦●][ \t]*|#+[ \t]+)")
# "1. tablet", "1)tablet", "①tablet", but not "1.5 mg" and not "12、24 months".
_NUMBERED = re.compile(rf"[ \t]*[(（]?(\d{{1,2}})(?:[)）、.．][ \t]+|[)）、](?!\d)|[.．](?=[{_CJK}]))")
_CIRCLED = re.compile("[①-⑳]")
_EMPHASIS = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1|`([^`\n]+)`")
_SPACE = re.compile(rf"(?<=[{_CJK}])\s+|\s+(?=[{_CJK}])|(?<=\d)[ \t]+(?=[a-zµ°%])")
_NUMBER = re.compile(
    r"\d+(?:\.\d+)?|[a-z -]+|[\d.零〇一二两三四五六七八九十百千万亿廿]*[零〇一二两三四五六七八九十百千万亿廿]"
)
# An amount is a number or range with its unit and scope. A numeral counts as a number only before a unit.
_DIGITS = r"\d+(?:[.,/]\d+)*"
_NUMERAL = r"(?:\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve)\b|[一二两三四五六七八九十百]{1,5})"
_RANGE = r"\s*(?:[-~–—−]+|至|到|to)\s*"
_ANY_SCOPE = rf"每(?!{_NUMERAL})[㐀-鿿a-z]|\b(?:per|each|every) (?!{_NUMERAL})[a-z]+"  # "per capsule" is not "per dose"
_FROM_TO = re.compile(rf"\[([\d.]+)([^]\d/]*)(/[^]]+)?\]{_RANGE}\[([\d.]+)\2\]")  # "1片至2片"
_TIMES = {"once": "1time", "twice": "2time"}
_SEPARATOR = re.compile(r";|(?<!\d),|,(?!\d)|\band\b(?=\s)|&")
_SENTENCE_END = re.compile(r"[;。！？]|[.!?](?=\s)")
_RAISED = re.compile(r"(?<=\d)[⁰¹²³⁴-⁹]+")  # superscript digits: 10⁵ is not 105
_SAME_SIGNS = str.maketrans("‐‑’", "--'")  # typographic hyphens and apostrophe, and the ASCII ones
_QUOTES = "\"'“”‘’「」『』《》"
_PROSE = re.compile(r"\*\*|^#+ |\n|[.!?] +[A-Z]|[。！？](?=.)")
_LONG = {"en": 40, "zh": 15}  # minimum number of characters of prose; a shorter text is an item even with a full stop


class Words(Record):
    """A task's words of one language.

    `refusals` are sentences that say that the database has no answer. `counters` may follow a number without changing
    it ("3 rows"). `kinds` are groups of words for things that can be counted. `yes_no` are the two answers to a yes-no
    question. `same` are groups of synonyms. `units` are groups of equal units. `scopes` are groups of words that
    qualify an amount ("per day", "about"); the words of the group "" do not change the amount.
    """

    refusals: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    kinds: tuple[tuple[str, ...], ...] = ()
    yes_no: tuple[str, ...] = ()
    same: tuple[tuple[str, ...], ...] = ()
    units: tuple[tuple[str, ...], ...] = ()
    scopes: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Reader:
    """Parses texts of one language with the words of a task."""

    words: Words

    def items(self, text: str) -> list[str]:
        """Return the items of `text` in order, each replaced by the first of its synonyms."""
        return [self._same.get(item, item) for item in split(text)]

    def is_refusal(self, text: str) -> bool:
        return normalise(text) in self._refusals

    def number_or_yes_no(self, text: str, question: str) -> str | None:
        """Return `text` as a number in digits, or as yes or no; None if `text` is anything else.

        Also None if `text` counts other things than `question` asks for. A number, yes or no
        follows from the rows, so no cell needs to contain it.
        """
        items = self.items(text)
        if len(items) != 1:
            return None
        item = items[0]
        if item in self.words.yes_no:
            return item
        texts = (normalise(question), item)
        asked, counted = ({kind for kind in self.words.kinds if any(w in text for w in kind)} for text in texts)
        if asked and counted and not asked & counted:
            return None
        bare = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", self._counter.sub("", item).strip())
        return _in_digits(bare) if _NUMBER.fullmatch(bare) else None

    @cached_property
    def amounts(self) -> Callable[[str], str]:
        """A function from normalised text to text with amounts as "[number unit/scope]": "一天1滴" to "[1滴/每日]"."""
        return lru_cache(maxsize=8192)(self._with_amounts)

    def _with_amounts(self, text: str) -> str:
        def shown(match: re.Match[str]) -> str:
            before, gap, number, unit, rest, after = (group or "" for group in match.groups())
            number = "-".join(_in_digits(end) or end for end in re.split(_RANGE, number))
            scopes = {self._first.get(word, word) for word in re.findall(self._scope, f"{before} {after}")} - {""}
            return f"{gap.lstrip()}[{'/'.join([number + self._first.get(unit, unit), *sorted(scopes)])}]{rest.rstrip()}"

        text = re.sub(r"(?<!at )\b(?:once|twice)\b", lambda match: _TIMES[match[0]], text)
        return re.sub(r"\][\s,;]*\[", "][", _FROM_TO.sub(r"[\1-\4\2\3]", self._amounts.sub(shown, text)))

    def only_scope(self, text: str) -> str:
        """Return the only scope that `text` names, else ""."""
        found = {self._first.get(word, word): word for word in re.findall(self._scope, text)}
        return next(iter(found.values())) if len(found) == 1 else ""

    def forms(self, item: str) -> list[str]:
        return [item, *(other for other, first in self._same.items() if first == item and other != item)]

    def begins_with(self, text: str) -> str | None:
        """Return the yes or no with which the normalised `text` begins; None if it begins with neither."""
        forms = ((form, answer) for answer in self.words.yes_no for form in self.forms(answer))
        for form, answer in sorted(forms, key=lambda pair: -len(pair[0])):
            if re.match(rf"{re.escape(form)}(?![a-z])", text):
                return answer
        return None

    @cached_property
    def _refusals(self) -> frozenset[str]:
        return frozenset(map(normalise, self.words.refusals))

    @cached_property
    def _same(self) -> dict[str, str]:
        groups = ([normalise(item) for item in group] for group in self.words.same)
        return {item: group[0] for group in groups for item in group}

    @cached_property
    def _first(self) -> dict[str, str]:
        return {word: group[0] for group in (*self.words.units, *self.words.scopes) for word in group}

    @cached_property
    def _scope(self) -> str:
        return rf"(?:{_any(self.words.scopes)}|{_ANY_SCOPE})"

    @cached_property
    def _amounts(self) -> re.Pattern[str]:
        """A pattern for an amount; its scope is up to 12 characters before or, if no number follows, behind it."""
        unit, scope = _any(self.words.units), self._scope
        number = rf"(?:{_DIGITS}|{_NUMERAL}(?=\s?{unit}))"
        number = rf"(?<![\da-z.^*-])(?:{number}|{_NUMERAL}(?={_RANGE}{number}))(?:{_RANGE}{number})?"
        gap = rf"(?:(?!{number}|{scope})[^\d,;。、\n]){{0,12}}?"
        behind = rf"(?:({gap})({scope})(?!(?!分| in| divided| given){gap}{number}))?"
        return re.compile(rf"(?:((?:{scope}\s?){{1,2}})({gap}))?({number})(?:\s?({unit}|[a-z%°μ]+){behind})?")

    @cached_property
    def _counter(self) -> re.Pattern[str]:
        counters = sorted(map(normalise, self.words.counters), key=len, reverse=True)
        return re.compile(f"(?:{'|'.join(map(re.escape, counters))})$")


def _any(groups: Iterable[Iterable[str]]) -> str:
    """Return a pattern that matches any word of `groups` as a whole, the longest first."""
    longest = sorted({word for group in groups for word in group} - {""}, key=len, reverse=True)
    bounded = (
        rf"{'(?<![a-z])' * w[0].isalpha()}{re.escape(w)}(?![a-z])" if w.isascii() else re.escape(w) for w in longest
    )
    return rf"(?:{'|'.join(bounded) or '(?!)'})"


def _in_digits(number: str) -> str | None:
    """Return `number`, written in digits or words, in digits; None if it is no number."""
    is_word = number[:1].isascii() and number[:1].isalpha()
    try:
        return f"{text2num(number, 'en') if is_word else cn2an.cn2an(number, 'smart'):.15g}"
    except (ValueError, LookupError, ArithmeticError):  # cn2an raises each of these errors for some texts
        return None


@lru_cache(maxsize=8192)  # cached, because the rollouts of a group read the same cells and give the same items
def normalise(text: str) -> str:
    """Return `text` without list marks, emphasis and final full stop, in NFKC and lower case.

    Superscript digits after a digit get a "^" (10⁵ becomes 10^5). Spaces next to Chinese characters, and between a
    number and its unit, are removed. Other white space becomes one space.
    """
    return "\n".join(map(_compact, _without_numbering(_plain_lines(text)))).rstrip(".。").strip()


def split(text: str) -> list[str]:
    """Return the normalised items of `text`, split at line ends, ";", ",", "、", "&" and the word "and"."""
    parts = [part for line in _plain_lines(text) for part in _SEPARATOR.split(line)]
    # List numbers are removed first, because "1、" is no item. The space before a unit is removed last, by `_compact`,
    # because "T4 and T3" would become "T4and T3".
    return _bare([item for part in _without_numbering(parts) for item in part.split("、")])


def sentences(text: str) -> list[str]:
    """Return the normalised sentences of `text`, split at line ends, semicolons and final stops."""
    parts = [part for line in _plain_lines(text) for part in _SENTENCE_END.split(line)]
    return _bare(_without_numbering(parts))


def _bare(parts: list[str]) -> list[str]:
    """Return `parts` without quotation marks, final stops and empty parts."""
    bare = (_compact(part).strip(_QUOTES).rstrip(".。").strip() for part in parts)
    return [part for part in bare if part]


def _plain_lines(text: str) -> list[str]:
    """Return the lines of `text` without bullets and emphasis, in NFKC and lower case; list numbers stay."""
    unmarked = _EMPHASIS.sub(lambda match: match[2] or match[3], text.strip())
    # NFKC turns ① into 1, so that the list number would become part of the text.
    numbered = _CIRCLED.sub(lambda match: f"({ord(match[0]) - ord('①') + 1}) ", unmarked)
    with_powers = _RAISED.sub(lambda match: f"^{match[0]}", numbered)
    plain = unicodedata.normalize("NFKC", with_powers).translate(_SAME_SIGNS).casefold()
    return [_BULLET.sub("", " ".join(line.split())) for line in plain.split("\n")]


def _without_numbering(parts: list[str]) -> list[str]:
    """Return `parts` without list numbers. They count up from any number, because a quoted cell may begin with "6. …".

    If the items are numbers, only list numbers that count up from 1 are removed: "6、5" may be two guesses.
    """
    marks = [_NUMBERED.match(part) for part in parts]
    first = next((part[mark.end() :] for part, mark in zip(parts, marks, strict=True) if mark), "")
    last = 0
    for number in (int(mark[1]) for mark in marks if mark):
        if number not in {1, last + 1} and (last or _NUMBER.fullmatch(_compact(first))):
            return parts
        last = number
    return [part[mark.end() :] if mark else part for part, mark in zip(parts, marks, strict=True)]


def _compact(text: str) -> str:
    return _SPACE.sub("", " ".join(text.split()))


def is_prose(reference: str, lang: Lang) -> bool:
    """Return whether a reference answer is text with Markdown or sentences, and not a list of facts."""
    text = reference.strip()
    return bool(_PROSE.search(text)) or (text.endswith((".", "。")) and len(text) > _LONG[lang])
