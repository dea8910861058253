"""Lay out text for a terminal: lines that are broken between words, and tables."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sql_agent.system.messages import printable

_HEADING_WIDTH = 30  # columns of a terminal
# Chinese has no spaces: a line may end after each character, though not before punctuation that closes.
_WIDE = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff01-\uff60"
_CLOSING = "、。，．：；！？）》」』】〉”’,.:;!?)"
_PIECE = re.compile(rf"\s+|[{_WIDE}][{_CLOSING}]*|[^\s{_WIDE}]+[{_CLOSING}]*")

TableRow = tuple[str, list[str]]  # a label, and a text for each column


@dataclass(frozen=True)
class TextTable:
    """A table of texts for the terminal, a page or Markdown: a heading for each column, and sections of rows."""

    title: str
    columns: list[str]
    sections: list[list[TableRow]]
    note: str = ""


def print_table(table: TextTable, console: Console) -> None:
    """Print `table`, or only its note if it has no columns."""
    if not table.columns:
        console.print(Text(table.note))
        return
    drawn = Table(title=Text(table.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    drawn.add_column("")
    for column in table.columns:
        drawn.add_column(Text("\n".join(wrap(column, _HEADING_WIDTH))), justify="right")
    for section in table.sections:
        for label, texts in section:
            drawn.add_row(Text(label), *map(Text, texts))
        drawn.add_section()
    console.print(drawn)


def wrap(text: str, width: int, *, fold: bool = True) -> list[str]:
    """Break `text` into lines of at most `width` columns, at least one line; line breaks in `text` stay.

    A word that is wider than a whole line is cut, or with `fold` False kept whole on a separate line, so that a path
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
