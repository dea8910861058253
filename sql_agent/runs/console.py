"""Print the progress and the results of a run on the terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from sql_agent.runs.charts import validation_table
from sql_agent.runs.text_layout import print_table, wrap
from sql_agent.system.messages import printable

_QUIET_S = 10.0  # without output, after which the next step of fine-tuning is printed
_WIDTH = 80  # columns of an output that is not a terminal, unless COLUMNS is set


def open_console() -> Console:
    """Return a console on stdout, as wide as the terminal; without a terminal, COLUMNS or else 80 columns wide."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(highlight=False, width=None if known else _WIDTH)


class Ui:
    """Prints lines; on a terminal also progress bars, which vanish when they are done."""

    def __init__(self, console: Console | None = None, *, wraps: bool | None = None) -> None:
        """Print to `console`; `wraps` breaks lines between words, by default on a terminal only.

        The lines of a log file are not wrapped, so that they can be searched.
        """
        self.console = console or open_console()
        self._shown_at = time.monotonic()  # the last step of supervised fine-tuning
        self._wraps = self.console.is_terminal if wraps is None else wraps

    def say(self, text: str) -> None:
        """Print `text`; a word that is wider than the terminal, such as a path, stays whole."""
        if self._wraps:
            text = "\n  ".join(wrap(text, self.console.width - 2, fold=False))
        self.console.print(
            Text(printable(text)), soft_wrap=True
        )  # not as markup: a path or a log line may contain square brackets

    def status(self, text: str) -> AbstractContextManager[Any]:
        return self.console.status(Text(text))  # a path may contain square brackets

    @contextmanager
    def clock(self, text: str) -> Iterator[None]:
        """Show the seconds that something of unknown length has taken, on a terminal only."""
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with self._bar(*columns) as bar:
            bar.add_task(text, total=None)
            yield

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a bar over `total` items, on a terminal only; yields a function that takes how many are done."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with self._bar(*columns) as bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.update(task, completed=done)

    @contextmanager
    def _bar(self, *columns: ProgressColumn) -> Iterator[Progress]:
        bar = Progress(*columns, console=self.console, transient=True)
        if not self.console.is_interactive:  # a started bar would leave an empty line there
            yield bar
            return
        with bar:
            yield bar

    def sft(self, step: int, steps: int, loss: float) -> None:
        if step in (1, steps) or step % 5 == 0 or time.monotonic() - self._shown_at > _QUIET_S:
            self._shown_at = time.monotonic()
            self.say(f"SFT {step}/{steps}: loss {loss:.3f} nats a token")

    def step(self, step: int, steps: int, values: Mapping[str, float]) -> None:
        self.say(
            f"Step {step}/{steps}: reward {values.get('reward/mean', float('nan')):.3f} "
            f"(rule {values.get('reward/rule', 0):.3f}, judge {values.get('reward/judge', 0):.3f}), "
            f"{values['rollouts/kept']:.0f} of {values['rollouts/enqueued']:.0f} rollouts kept, "
            f"rewards differ in {values.get('groups/informative', 0):.0%} of the groups, "
            f"gradient norm {values['update/grad_norm']:.2f}, "
            f"rollout {values['timing/rollout_s']:.1f} s, update {values['timing/update_s']:.1f} s"
        )

    def validation(self, step: int, measured: Mapping[str, Mapping[str, float]]) -> None:
        """Print a line for each set of questions."""
        for name, values in measured.items():
            refused = values.get("refused_answerable")
            self.say(
                f"Validation at step {step}: reward {values.get('reward/mean', float('nan')):.3f} on "
                f"{values['questions']} {name} questions, {values.get('accurate', 0):.1%} accurate, "
                f"{values.get('agent/sql_ok', 0):.1%} with a successful query"
                + (f", {refused:.1%} of the answerable refused" if refused is not None else "")
            )

    def before_after(self, validations: Sequence[Mapping[str, float]]) -> None:
        """Print a table of the first and the last validation, with columns for each set of questions."""
        table = validation_table(validations)
        columns = [heading.replace(", ", "\n") for heading in table.columns]  # narrow enough for 80 columns
        print_table(replace(table, columns=columns), self.console)
