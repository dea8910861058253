"""Take Markdown and other form off a text before a model or a pattern sees it."""

from __future__ import annotations

import re
import unicodedata

_MARKDOWN = re.compile(r"[*_`#>|~]+|^\s*[-+•]\s+|^\s*\d{1,2}[.)、](?=\s|\D)", re.MULTILINE)
_LINE_MARKS = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|[-+*•][ \t]+|(?:-{3,}|={3,}|\*{3,})[ \t]*$|```\w*[ \t]*$)+", re.MULTILINE
)
_INLINE_MARKS = re.compile(r"\*\*|__|`+|(?<=\s)\*(?=\S)|(?<=\S)\*(?=\s|$)")
_LIST_NUMBERS = re.compile(r"[①-⒇]|(?:(?<=^)|(?<=[\s;；,，、:：。]))[(（]\d{1,2}[)）]", re.MULTILINE)


def normalise(text: str) -> str:
    """Return `text` in NFKC, lower case, and without Markdown, so that headers and bullets do not count."""
    return _MARKDOWN.sub(" ", unicodedata.normalize("NFKC", _LIST_NUMBERS.sub("; ", text)).casefold())


def plain_text(text: str) -> str:
    """Return `text` without Markdown's marks, words and case untouched."""
    without_lines = _LINE_MARKS.sub("", text)
    return re.sub(r"\n{2,}", "\n", _INLINE_MARKS.sub("", without_lines)).strip()
