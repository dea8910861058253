"""Have the teacher model filter questions, or turn prose references into facts: sql-agent data filter | facts"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from sql_agent.cli.command import DATABASE, Commands, add_command, add_setting_flags, database
from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings import Settings, load_settings
from sql_agent.errors import ConfigError, DataError
from sql_agent.questions.question_columns import ColumnMapping
from sql_agent.questions.question_files import load_questions, write_jsonl, write_parquet
from sql_agent.questions.teacher import (
    DEFAULT_RUBRIC,
    AnyEntry,
    Asked,
    Decision,
    ProgressLog,
    TeacherRun,
    decide,
    decision_digest,
    facts_of_prose,
)
from sql_agent.reward.factory import teacher_client
from sql_agent.reward.judges.items import is_prose
from sql_agent.runs.console import Ui
from sql_agent.schemas import Question, Usage
from sql_agent.system.messages import first_of
from sql_agent.tasks.task import load_task

_FILTER = """\
Have the model TEACHER_MODEL keep or drop each question of a file by a rubric.
Writes the kept questions to KEPT, and every decision with its reason to
KEPT.decisions.jsonl. After an interrupt the same command continues."""

_FILTER_EXAMPLES = """\
  sql-agent data filter mine.jsonl --out kept.jsonl
  sql-agent data filter mine.parquet --out kept.parquet --rubric rubric.txt
"""

_FACTS = """\
Turn prose references into facts, which the judge `facts` can grade. The model
TEACHER_MODEL proposes facts; each must be a verbatim quote from the evidence or
from a cell that the gold SQL returns, else the prose stays. Each question is
written to --out at once; after an interrupt the same command continues."""

_SHOWN = 5  # maximum number of printed lines about questions, answers or causes of one kind


def add_filter(commands: Commands) -> None:
    summary = "have a teacher model keep or drop questions"
    parser = add_command(commands, "filter", _run_filter, summary, _FILTER, _FILTER_EXAMPLES)
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="questions, parquet or JSONL")
    add("--out", type=Path, required=True, metavar="KEPT", help="file to write, .parquet or .jsonl")
    add("--rubric", type=Path, metavar="FILE", help="text file with one criterion a line (default: a built-in rubric)")
    add_question_arguments(parser)


def add_facts(commands: Commands) -> None:
    example = "  sql-agent data facts my.jsonl --out my_facts.jsonl --db my.db"
    summary = "have a teacher model turn prose references into facts"
    parser = add_command(commands, "facts", _run_facts, summary, _FACTS, example)
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="questions, parquet or JSONL")
    add("--out", type=Path, required=True, metavar="FILE", help="JSONL file to write, or to continue")
    add("--db", type=database, metavar="DB", help="database whose cells facts may quote, in addition to evidence: "
        f"{DATABASE}")  # fmt: skip
    add_question_arguments(parser)


def add_question_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="TOML file that names the columns of FILE")
    add_setting_flags(parser, {"--task": "task"})


def mapping_of(arguments: argparse.Namespace) -> ColumnMapping | None:
    return ColumnMapping.load(arguments.mapping) if arguments.mapping else None


def _run_filter(arguments: argparse.Namespace) -> int:
    ui, settings, out = Ui(wraps=True), load_settings(flags=arguments.flags), arguments.out
    questions = load_questions(arguments.file, mapping_of(arguments))
    check_out(out, arguments.file, ".parquet", ".jsonl")
    client = teacher_client(settings.judge, TeacherSettings())
    rubric = _rubric(arguments.rubric) if arguments.rubric else DEFAULT_RUBRIC
    log = ProgressLog(out.with_name(f"{out.name}.decisions.jsonl"), Decision)
    run = ask_teacher(
        "Deciding on questions",
        [questions],
        log,
        partial(decide, client=client, rubric=rubric),
        settings,
        ui,
        digest=lambda question: decision_digest(question, client, rubric),
    )
    decisions = [log.entries[q.id] for q in questions if q.id in log.entries]
    kept_ids = {decision.id for decision in decisions if decision.keep}
    kept = [question for question in questions if question.id in kept_ids]
    if out.suffix == ".parquet":
        write_parquet(out, kept)
    else:
        write_jsonl(out, [(question, {}) for question in kept])
    ui.say(f"{len(kept)} of {len(questions)} questions are kept: {out}; {log.path} has every reason")
    say_some((f"dropped {d.id}: {d.reason}" for d in decisions if not d.keep), ui)
    if run.failed:
        ui.say(f"{len(run.failed)} questions are left out because the teacher failed; the same command retries")
        say_some((f"{number}: {error}" for number, error in run.failed.items()), ui)
    ui.say(load_task(settings.task).disclaimer)
    return 0


def _run_facts(arguments: argparse.Namespace) -> int:
    ui, settings, out = Ui(wraps=True), load_settings(flags=arguments.flags), arguments.out
    check_out(out, arguments.file, ".jsonl")
    task = load_task(settings.task)
    client = teacher_client(settings.judge, TeacherSettings())
    questions = load_questions(arguments.file, mapping_of(arguments))
    log = ProgressLog(out, Question)
    prose = {q.id for q in questions if q.id not in log.entries and is_prose(q.answer, q.lang)}
    problems: dict[str, str] = {}
    with task.databases(settings, arguments.db) if arguments.db else nullcontext() as databases:

        async def ask(question: Question) -> tuple[Question, Usage]:
            if question.id not in prose:
                return question, Usage()
            with databases.of(question.database) if databases else nullcontext() as opened:
                result = await facts_of_prose(question, client, opened)
            if result.problem:
                problems[question.id] = result.problem
            return result.question, result.usage

        def report(_run: TeacherRun) -> None:
            made = len(prose & log.entries.keys()) - len(problems)
            ui.say(f"{made} of {len(prose)} references of prose are facts now, in {out}")
            say_some((f"still prose: {number}: {problem}" for number, problem in problems.items()), ui)

        ask_teacher("Asking for facts", [questions], log, ask, settings, ui, report=report)
    ui.say(task.disclaimer)
    return 0


def ask_teacher(  # noqa: PLR0917  the questions, the log, and how to ask
    title: str,
    groups: Iterable[Sequence[Asked]],
    log: ProgressLog[AnyEntry],
    ask: Callable[[Asked], Awaitable[tuple[AnyEntry, Usage]]],
    settings: Settings,
    ui: Ui,
    *,
    digest: Callable[[Asked], str] = lambda _: "",
    report: Callable[[TeacherRun], None] = lambda _: None,
    what: str = "questions",
) -> TeacherRun:
    """Ask the teacher about each item of `groups` that has no entry in `log`, and log the entry that `ask` returns.

    Finishes each group before the next. At the end, also after an error, calls `report` and prints the cost.
    """
    groups = list(groups)
    left = [[each for each in group if log.find(each, digest(each)) is None] for group in groups]
    total, count = sum(map(len, groups)), sum(map(len, left))
    if count < total:
        ui.say(f"{total - count} of {total} {what} are in {log.path} already")

    async def ask_one(each: Asked) -> Usage:
        entry, usage = await ask(each)
        log.add(entry)
        return usage

    async def ask_all(run: TeacherRun) -> None:
        for group in left:
            await run.ask_each(group, ask_one)

    with ui.progress(title, count) as on_done:
        run = TeacherRun(settings.judge.concurrency, on_done)
        try:
            asyncio.run(ask_all(run))
        finally:
            report(run)
            ui.say(f"Cost: {run.usage.described}")
    return run


def say_some(lines: Iterable[str], ui: Ui, more: str = "more") -> None:
    """Print the first `_SHOWN` lines, and, if lines are left out, how many, such as "and 7 more"."""
    for line in first_of(lines, _SHOWN, more):
        ui.say(f"  {line}")


def check_out(out: Path, source: object, *endings: str) -> None:
    """Raise ConfigError unless the name of `out` ends in one of `endings` and `out` is not the file `source`."""
    known = " or ".join(endings)
    if out.suffix not in endings:
        raise ConfigError(f"--out {out} is not a {known} file", hint=f"give a file name that ends in {known}")
    if isinstance(source, Path) and out.resolve() == source.resolve():
        raise ConfigError(f"--out {out} is the input file", hint="name another file with --out")


def _rubric(path: Path) -> str:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "give a text file with one criterion a line"
        raise DataError(f"cannot read the rubric {path}: {error}", hint=hint) from None
    if not text.strip():
        raise DataError(f"the rubric {path} is empty", hint="write one criterion a line")
    return text
