"""Have the teacher model keep or drop questions: sql-agent data filter FILE --out KEPT"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from sql_agent.cli.parser import help_text
from sql_agent.cli.question_out import check_out
from sql_agent.config.settings import TeacherSettings, load_settings
from sql_agent.errors import DataError
from sql_agent.questions.progress_log import ProgressLog
from sql_agent.questions.question_columns import ColumnMapping
from sql_agent.questions.question_files import load_questions, write_jsonl, write_parquet
from sql_agent.questions.question_filter import Decision, QuestionFilter, default_rubric
from sql_agent.reward.factory import teacher_client
from sql_agent.runs.console import Ui
from sql_agent.schemas import Question
from sql_agent.tasks.task import load_task

DESCRIPTION = """\
Have the model TEACHER_MODEL keep or drop each question of a file by a rubric.
KEPT gets the questions that are kept, KEPT.decisions.jsonl every decision with
its reason. After an interrupt the same command continues."""

EXAMPLES = """\
  sql-agent data filter mine.jsonl --out kept.jsonl
  sql-agent data filter mine.parquet --out kept.parquet --rubric rubric.txt
"""

_SHOWN = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Filter as the command line of `utils/filter_questions.py` says; returns 0."""
    parser = argparse.ArgumentParser(
        prog="filter_questions.py",
        **help_text(DESCRIPTION, EXAMPLES.replace("sql-agent data filter", "python utils/filter_questions.py")),
    )
    add_arguments(parser)
    return run(parser.parse_args(argv))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sql-agent data filter`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="questions, parquet or JSONL")
    parser.add_argument("--out", type=Path, required=True, metavar="KEPT", help="file to write, .parquet or .jsonl")
    parser.add_argument("--rubric", type=Path, metavar="FILE", help="text, a line a demand (default: the built-in one)")
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="TOML file that names the columns")


def run(arguments: argparse.Namespace) -> int:
    """Decide on the questions, write those that are kept, and print what was dropped and why; returns 0.

    Raises JudgeError when the model cannot be asked; what was decided by then is kept for the next call.
    """
    ui, settings = Ui(wraps=True), load_settings()
    questions = load_questions(arguments.file, ColumnMapping.load(arguments.mapping) if arguments.mapping else None)
    check_out(arguments.out, arguments.file, ".parquet", ".jsonl")
    client = teacher_client(settings.judge, TeacherSettings())
    log = ProgressLog(arguments.out.with_name(f"{arguments.out.name}.decisions.jsonl"), Decision)
    chosen = QuestionFilter(client, _rubric(arguments.rubric), log)
    decided = sum(chosen.decision_on(question) is not None for question in questions)
    if decided:
        ui.say(f"{decided} of {len(questions)} questions are in {log.path} already")
    done = 0
    try:
        with ui.progress("Deciding on questions", len(questions) - decided) as show:

            def on_done() -> None:
                nonlocal done
                done += 1
                show(done)

            asyncio.run(chosen.decide(questions, settings.judge.concurrency, on_done))
    finally:
        ui.say(f"Cost: {chosen.usage.described}")
    _write(arguments.out, questions, chosen, ui)
    ui.say(load_task(settings.task).disclaimer)
    return 0


def _rubric(path: Path | None) -> str:
    if path is None:
        return default_rubric()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the rubric {path}: {error}", hint="give a text file, a line a demand") from None
    if not text.strip():
        raise DataError(f"the rubric {path} is empty", hint="write a line for each demand")
    return text


def _write(out: Path, questions: Sequence[Question], chosen: QuestionFilter, ui: Ui) -> None:
    decisions = [(question, chosen.decision_on(question)) for question in questions]
    kept = [question for question, decision in decisions if decision and decision.keep]
    dropped = [decision for _, decision in decisions if decision and not decision.keep]
    if out.suffix == ".parquet":
        write_parquet(out, kept)
    else:
        write_jsonl(out, [(question, {}) for question in kept])
    ui.say(f"{len(kept)} of {len(questions)} questions are kept: {out}; {chosen.log.path} has every reason")
    for decision in dropped[:_SHOWN]:
        ui.say(f"  dropped {decision.id}: {decision.reason}")
    if len(dropped) > _SHOWN:
        ui.say(f"  and {len(dropped) - _SHOWN} others")
    if chosen.failed:
        ui.say(f"{len(chosen.failed)} could not be decided on and are left out; the same command asks again")
        for number, error in list(chosen.failed.items())[:_SHOWN]:
            ui.say(f"  {number}: {error}")
