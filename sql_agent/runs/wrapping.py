"""Break text into lines of a terminal, between words; Chinese characters are two columns wide."""

from __future__ import annotations

import re

from rich.cells import cell_len, chop_cells

from sql_agent.system.messages import printable

# Chinese has no spaces: a line may end after each character, though not before punctuation that closes.
_WIDE = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff01-\uff60"
_CLOSING = "、。，．：；！？）》」』】〉”’,.:;!?)"
_PIECE = re.compile(rf"\s+|[{_WIDE}][{_CLOSING}]*|[^\s{_WIDE}]+[{_CLOSING}]*")


def wrap(text: str, width: int, *, fold: bool = True) -> list[str]:
    """Break `text` into lines of at most `width` columns (at least one line); its own line breaks stay.

    A word that is wider than a whole line is cut, or with `fold` False kept whole on a line of its own, so that a path
    can be copied. Control characters become spaces.
    """
    lines: list[str] = []
    for paragraph in text.splitlines() or [""]:
        lines += _wrap_paragraph(printable(paragraph), width, fold=fold)
    return lines


def _wrap_paragraph(paragraph: str, width: int, *, fold: bool) -> list[str]:
    lines, line = [], ""
    for piece in _PIECE.findall(paragraph):
        if cell_len(line + piece.rstrip()) <= width:
            line += piece
            continue
        if line.strip():
            lines.append(line.rstrip())
        line = piece.lstrip()
        if fold and cell_len(line) > width:
            *full, line = chop_cells(line, width)
            lines += full
    return [*lines, line.rstrip()] if line.strip() or not lines else lines
