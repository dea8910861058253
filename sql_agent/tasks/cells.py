"""Clean the cells of imported data, and find the cells of a database that look damaged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from html import unescape
from typing import Any

# Cells that count as empty. Not 无 ("none"), which answers a question such as "who must not take it?".
_EMPTY = frozenset({"n/a", "-", "--", "–", "—", "none", "null", "nan", "空", "无数据", "暂无数据"})
_ENTITY = re.compile(r"&(?:#\d+|#x[0-9a-f]+|[a-z]\w*);", re.IGNORECASE)  # needs ";", because "&copy=2" in a URL is text
_INLINE = frozenset({"a", "b", "em", "font", "i", "small", "span", "strong", "sub", "sup", "u"})  # tags inside a word
# Only known tags: "<b and a>" in "a<b and a>c" is text.
_TAG = re.compile(
    rf"</?({'|'.join(sorted(_INLINE))}|blockquote|br|center|div|h[1-6]|hr|img|li|ol|p|pre|table|tbody|td|th|thead|tr|ul)"
    r"(?:\s+[\w:-]+\s*=[^<>]*)?\s*/?>",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d+)?")  # not "007", which is a code
_CODE_DIGITS = 8  # numbers of at least this length, all equally long, are codes: barcodes, phone numbers, dates
# UTF-8 that was read as Windows-1252: its first byte and the following bytes, such as "Ã©" for "é".
_FOLLOWING = "[\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
_MOJIBAKE = re.compile(rf"\ufffd|锟斤拷|[ÂÃ]{_FOLLOWING}|[à-ï]{_FOLLOWING}{{2}}")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_SEPARATOR = re.compile(r"[;；|,、]")  # not ，, which separates clauses
_LONG_LINE, _LONG_ITEM = 60, 30  # minimum and maximum number of characters


def texts_of(value: Any) -> Iterator[str]:
    """Yield the cleaned texts of a cell or of a list of cells. Raises TypeError unless each is text, number or date."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from texts_of(item)
    elif value is not None:
        if isinstance(value, bytes):
            value = value.decode("utf-8", "surrogateescape")
        if not isinstance(value, str | int | float | Decimal | date | time):
            raise TypeError(f"a {type(value).__name__} is not a text")
        text = _plain(str(value))
        if text and text.casefold() not in _EMPTY:
            # A spreadsheet stores a date with a time.
            yield text.removesuffix(" 00:00:00") if isinstance(value, date) else text


def unreadable(text: str) -> bool:
    """Return whether `text` contains bytes that its encoding does not allow."""
    return "\0" in text or any("\ud800" <= character <= "\udfff" for character in text)


def are_numbers(texts: Sequence[str]) -> bool:
    """Return whether all `texts` are numbers and not codes: "12" and "3.5", but not "007" and not phone numbers."""
    codes = len({len(text) for text in texts}) == 1 and len(texts[0]) >= _CODE_DIGITS and "." not in texts[0]
    return not codes and all(map(_NUMBER.fullmatch, texts))


def suspicious_cells(columns: Mapping[str, Iterable[object]]) -> dict[str, list[str]]:
    """Return the damaged cells as {kind of damage: ["column: text", …]}; `columns` maps column names to cells."""
    found: dict[str, list[str]] = {}
    for name, cells in columns.items():
        texts = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
        if texts and are_numbers(texts):
            found.setdefault("numbers stored as text", []).extend(f"{name}: {text}" for text in texts)
        for text in texts:
            for what in _damages(text):
                found.setdefault(what, []).append(f"{name}: {text}")
    return found


def _damages(text: str) -> Iterator[str]:
    if _TAG.search(text) or _ENTITY.search(text):
        yield "HTML"
    if text.strip().casefold() in _EMPTY:
        yield "texts that mean an empty cell"
    if _is_mojibake(text):
        yield "text of a wrong encoding"
    if _is_mixed_list(text):
        yield "long lists with mixed separators"


def _is_mojibake(text: str) -> bool:
    """Return whether `text` is UTF-8 that was decoded as Windows-1252, or Chinese UTF-8 decoded as GB 18030."""
    if text.isascii():
        return False
    if _MOJIBAKE.search(text):
        return True
    try:
        return _CHINESE.search(text.encode("gb18030").decode("utf-8")) is not None
    except UnicodeError:
        return False


def _is_mixed_list(text: str) -> bool:
    """Return whether `text` is one long line of short items with two separators, each used three times or more."""
    if len(text) < _LONG_LINE or "\n" in text or "。" in text or ". " in text:
        return False
    separators = _SEPARATOR.findall(text)
    often = [mark for mark in set(separators) if separators.count(mark) >= 3]
    return len(often) > 1 and max(map(len, _SEPARATOR.split(text))) <= _LONG_ITEM


def _plain(text: str) -> str:
    """Return `text` without HTML entities and tags, with single spaces: "a&#39;s<br/>b" becomes "a's b"."""
    text = _ENTITY.sub(lambda match: unescape(match[0]), text)
    text = _TAG.sub(lambda match: "" if match[1].lower() in _INLINE else " ", text)
    return " ".join(text.split())
