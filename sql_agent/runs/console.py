"""Print on the terminal: lines wrapped between words, progress bars, tables, and the steps of a run."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from sql_agent.system.messages import printable

_QUIET_S = 10.0  # after this time without a line, a step of supervised fine-tuning prints a line
_WIDTH = 80  # characters per line if stdout is not a terminal and COLUMNS is not set
_HEADING_WIDTH = 30  # characters per line of a table's heading
# In Chinese text, a line may break after any character, but not before closing punctuation.
_WIDE = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff01-\uff60"
_CLOSING = "、。，．：；！？）》」』】〉”’,.:;!?)"
_PIECE = re.compile(rf"\s+|[{_WIDE}][{_CLOSING}]*|[^\s{_WIDE}]+[{_CLOSING}]*")


class Progressing(Protocol):
    """Sets the number of items that are done in a progress bar, and a note such as "120 tokens/s"."""

    def __call__(self, done: int, note: str = "") -> None: ...


class Ui:
    """Prints lines, and on a terminal also progress bars, which disappear at the end."""

    def __init__(self, console: Console | None = None, *, wraps: bool | None = None) -> None:
        """Print to `console`; with `wraps`, break long lines between words.

        By default lines are broken only on a terminal, because whole lines of a log file can be searched.
        """
        known = sys.stdout.isatty() or "COLUMNS" in os.environ
        self.console = console or Console(highlight=False, width=None if known else _WIDTH)
        self._shown_at = time.monotonic()  # time of the last line from `sft`
        self._sft_since = 0.0  # time of the first step of `sft`
        self._wraps = self.console.is_terminal if wraps is None else wraps

    def say(self, text: str) -> None:
        if self._wraps:
            text = "\n  ".join(wrap(text, self.console.width - 2, fold=False))
        # Printed as Text, because square brackets in a str are markup.
        self.console.print(Text(printable(text)), soft_wrap=True)

    def status(self, text: str) -> AbstractContextManager[object]:
        """On a terminal, show `text` and the elapsed time during the block."""
        return self.progress(text, None)

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Progressing]:
        """On a terminal, show a progress bar for `total` items (None: unknown); yield the function that moves it."""
        left = () if total is None else (TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
        shape = (SpinnerColumn(),) if total is None else (BarColumn(), MofNCompleteColumn())
        # Without markup, because a path may contain square brackets.
        columns = (TextColumn("{task.description}", markup=False), *shape, TimeElapsedColumn(), *left)
        bar = Progress(*columns, console=self.console, transient=True)
        task = bar.add_task(title, total=total, note="")

        def move(done: int, note: str = "") -> None:
            bar.update(task, completed=done, note=note)

        with bar if self.console.is_interactive else nullcontext():  # a hidden bar would leave an empty line
            yield move

    def sft(self, step: int, steps: int, loss: float) -> None:
        now = time.monotonic()
        if step == 1:
            self._sft_since = now
        if step in (1, 2, steps) or step % 5 == 0 or now - self._shown_at > _QUIET_S:
            self._shown_at = now
            left = (steps - step) * (now - self._sft_since) / max(1, step - 1)
            self.say(f"SFT {step}/{steps}: loss {loss:.3f} nats a token{_minutes_left(left)}")

    def step(self, step: int, steps: int, values: Mapping[str, float]) -> None:
        left_s = (steps - step) * (values["timing/rollout_s"] + values["timing/update_s"])
        self.say(
            f"Step {step}/{steps}: reward {values.get('reward/mean', float('nan')):.3f} "
            f"(rule {values.get('reward/rule', 0):.3f}, judge {values.get('reward/judge', 0):.3f}), "
            f"{values['rollouts/kept']:.0f} of {values['rollouts/enqueued']:.0f} rollouts kept, "
            f"rewards differ in {values.get('groups/informative', 0):.0%} of the groups, "
            f"gradient norm {values['update/grad_norm']:.2f}, "
            f"rollout {values['timing/rollout_s']:.1f} s{_tokens_per_second(values)}, "
            f"update {values['timing/update_s']:.1f} s{_minutes_left(left_s)}"
        )

    def validation(self, step: int, measured: Mapping[str, Mapping[str, float]]) -> None:
        for name, values in measured.items():
            refused = values.get("refused_answerable")
            what = f"at step {step}" if step >= 0 else "of the untrained model"
            self.say(
                f"Validation {what}: reward {values.get('reward/mean', float('nan')):.3f} on "
                f"{values['questions']} {name} questions, {values.get('accurate', 0):.1%} accurate, "
                f"{values.get('agent/sql_ok', 0):.1%} with a successful query"
                + (f", {refused:.1%} of the answerable refused" if refused is not None else "")
            )


def _tokens_per_second(values: Mapping[str, float]) -> str:
    tokens = values.get("agent/completion_tokens", 0.0) * values["rollouts/kept"]
    seconds = values["timing/rollout_s"]
    return f" ({tokens / seconds:.0f} tokens/s)" if tokens and seconds else ""


def _minutes_left(seconds: float) -> str:
    return f"; about {seconds / 60:.0f} min left" if seconds >= 60 else ""


TableRow = tuple[str, list[str]]  # a label, and the texts of the cells


@dataclass(frozen=True)
class TextTable:
    """A table for the terminal, a page or Markdown: headings of `columns`, and `sections` of rows."""

    title: str
    columns: list[str]
    sections: list[list[TableRow]]
    note: str = ""


def print_table(table: TextTable, console: Console) -> None:
    if not table.columns:
        console.print(Text(table.note))
        return
    drawn = Table(title=Text(table.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    drawn.add_column("")
    for column in table.columns:
        drawn.add_column(Text("\n".join(wrap(column.replace(", ", "\n"), _HEADING_WIDTH))), justify="right")
    for section in table.sections:
        for label, texts in section:
            drawn.add_row(Text(label), *map(Text, texts))
        drawn.add_section()
    console.print(drawn)


def wrap(text: str, width: int, *, fold: bool = True) -> list[str]:
    """Break `text` into at least one line of at most `width` columns each; line breaks in `text` are kept.

    A word that is longer than a line is cut if `fold` is true; otherwise it stays whole, so that a path can be copied.
    Control characters become spaces. A Chinese character takes two columns.
    """
    paragraphs = text.splitlines() or [""]
    return [line for each in paragraphs for line in _wrap_paragraph(printable(each), width, fold=fold)]


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
