"""Print a span, or a rollout: its question, queries, rows and answer, and the reasons for its reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from sql_agent.reward.rule_reward import FULL_REWARD
from sql_agent.runs.console import Ui, wrap
from sql_agent.schemas import Cell, Outcome, QueryAnswer, QueryCall, RewardParts, RolloutRecord
from sql_agent.system.messages import printable

_LABEL = 11  # columns for the label
_LEAST = 8  # minimum number of columns for the text, even on a narrower terminal
_MEASURED = 10_000  # columns of an imaginary terminal on which the width of a table is measured
_ROWS_SHOWN = 5
_CELL_CHARS = 300
_VALUE_CHARS = 200  # maximum number of characters of a span's attribute


def show_rollout(record: RolloutRecord, console: Console) -> None:
    show_field(console, "Question", record.question.question)
    for number, call in enumerate(record.calls, 1):
        show_query(number, call.sql, console)
        show_result(call.answer, console)
    show_field(console, "Answer", record.answer or "(none)")
    if record.outcome is not Outcome.ANSWERED:
        show_field(console, "Model", record.outcome.message)
    if record.question.answer:
        show_field(console, "Reference", record.question.answer)
    if record.reward is not None:
        _show_reward(record.reward, record.calls, console)
    elif record.dropped is not None:
        show_field(console, "Failed", str(record.dropped))
    else:
        show_field(console, "Reward", "none: without a reference answer nothing is graded")


def show_query(number: int, sql: str, console: Console) -> None:
    show_field(console, f"Query {number}", sql)


def show_result(answer: QueryAnswer, console: Console) -> None:
    error = answer.error
    if error is None:
        _show_rows(answer, console)
    else:
        show_field(console, "Error", f"{error.message} ({error.kind})")
    if hint := error.hint if error else answer.hint:
        show_field(console, "Hint", hint)


def _show_rows(answer: QueryAnswer, console: Console) -> None:
    """Print the first rows as a table, or with a line for each cell if the table is wider than the console."""
    parts = [str(answer.count) if answer.count else "none"]
    if answer.truncated:
        parts.append("cut short by the limits on rows and characters")
    shown = answer.records[:_ROWS_SHOWN]
    if len(shown) < len(answer.records):
        parts.append(f"the first {len(shown)} are shown")
    show_field(console, "Rows", ", ".join(parts))
    if not shown:
        return
    columns, rows = [printable(name) for name in answer.columns], [[_cell(cell) for cell in row] for row in shown]
    table = Table(*(Column(Text(name), no_wrap=True) for name in columns), box=box.SQUARE)
    for row in rows:
        table.add_row(*map(Text, row))
    width = console.measure(table, options=console.options.update(width=_MEASURED)).maximum
    if width <= console.width - _LABEL and not any("\n" in cell for row in (columns, *rows) for cell in row):
        console.print(Padding(table, (0, 0, 0, _LABEL), expand=False))
        return
    for number, row in enumerate(rows, 1):
        if len(rows) > 1:
            show_field(console, "", f"row {number}")
        for column, cell in zip(columns, row, strict=True):
            show_field(console, "", f"{column}: {cell}", hanging=2)


def _cell(cell: Cell) -> str:
    text = "NULL" if cell is None else printable(str(cell))
    if len(text) <= _CELL_CHARS:
        return text
    return f"{text[:_CELL_CHARS].rstrip()} … (the first {_CELL_CHARS} of {len(text):,} characters)"


def _show_reward(reward: RewardParts, calls: Sequence[QueryCall], console: Console) -> None:
    parts = f"rule {reward.rule:.1f} + judge {reward.judge:.3f}"
    show_field(console, "Reward", f"{reward.total:.3f} of {FULL_REWARD} = {parts}")
    if not reward.rule:
        show_field(console, "Rule", f"nothing, because {_no_rule_reward(calls)}")
    if reward.judge < 1:
        show_field(console, "Judge", f"{reward.judge_name}: {_why_not_full(reward)}")


def _no_rule_reward(calls: Sequence[QueryCall]) -> str:
    if not calls:
        return "the model queried nothing"
    answers = [call.answer for call in calls if call.answer.error is None]
    if not answers:
        return "no query succeeded"
    if not any(answer.count for answer in answers):
        return "no query found a row"
    return "no row came from a table of the database"


def _why_not_full(reward: RewardParts) -> str:
    if reward.judge_name == "facts":  # the reason of this judge names each criterion
        return reward.reason
    named = [f"{name} {value:.2f}" for name, value in reward.criteria.items() if name != "prefiltered"]
    return "; ".join([reward.reason.removeprefix("prefilter: ") or "no reason given", *named])


def show_span(span: Any, ui: Ui) -> None:
    """Print a span of agent-lightning with its attributes; long values are cut."""
    seconds = (span.end_time or 0.0) - (span.start_time or 0.0)
    ui.say(f"span {span.sequence_id}: {span.name}, {seconds:.2f} s")
    for name, value in (span.attributes or {}).items():
        text = " ".join(str(value).split())
        shown = text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]} … ({len(text)} characters)"
        ui.say(f"  {name}: {shown}")


def show_field(console: Console, label: str, text: str, marked: Sequence[str] = (), *, hanging: int = 0) -> None:
    """Print `text` to the right of `label`, with the texts `marked` in colour; `hanging` indents all but line 1."""
    for number, line in enumerate(wrap(text, max(_LEAST, console.width - _LABEL - hanging))):
        body = Text(line)
        body.highlight_words(marked, "bold green", case_sensitive=False)
        head = " " * (_LABEL + hanging) if number else label.ljust(_LABEL)
        shown = Text(head, style="bold") + body
        shown.rstrip()
        console.print(shown, soft_wrap=True)
