"""Turn references of prose into facts with the teacher model: sql-agent data facts FILE --out FILE"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TextIO

from sql_agent.cli.database_argument import DATABASE, database
from sql_agent.cli.question_out import check_out
from sql_agent.config.settings import TeacherSettings, load_settings
from sql_agent.database import DatabasePool
from sql_agent.errors import DataError, JudgeError, SqlAgentError
from sql_agent.questions.prose_facts import Rewritten, facts_of_prose
from sql_agent.questions.question_columns import ColumnMapping
from sql_agent.questions.question_files import load_questions
from sql_agent.reward.factory import teacher_client
from sql_agent.reward.judges.client import JudgeClient
from sql_agent.reward.judges.items import is_prose
from sql_agent.runs.console import Ui
from sql_agent.schemas import Question, Usage
from sql_agent.system.files import drop_cut_line
from sql_agent.tasks.task import load_task

DESCRIPTION = """\
Turn references of prose into facts, which the judge `facts` can grade. The
model TEACHER_MODEL proposes them; each must stand to the letter in the evidence
or in a cell that the gold SQL returns, else the prose stays. A question is
in --out as soon as it is done; after an interrupt the same command continues."""

EXAMPLES = """\
  sql-agent data facts my.jsonl --out my_facts.jsonl --db my.db
"""

_AT_ONCE = 16  # questions
_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sql-agent data facts`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="questions, parquet or JSONL")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSONL file to write, or to continue")
    parser.add_argument(
        "--db", type=database, metavar="DB", help=f"{DATABASE}; facts may then also stand in cells of the gold SQL"
    )
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="TOML file that names the columns of FILE")


def run(arguments: argparse.Namespace) -> int:
    """Rewrite the references that are prose and return 0. Raises JudgeError when the teacher cannot be asked."""
    ui = Ui(wraps=True)
    out: Path = arguments.out
    check_out(out, arguments.file, ".jsonl")
    settings = load_settings()
    task = load_task(settings.task)
    client = teacher_client(settings.judge, TeacherSettings())
    mapping = ColumnMapping.load(arguments.mapping) if arguments.mapping else None
    questions = load_questions(arguments.file, mapping)
    done = _done(out)
    left = [question for question in questions if question.id not in done]
    if done:
        ui.say(f"{len(questions) - len(left)} of {len(questions)} questions are in {out} already")
    with ExitStack() as stack:
        databases = stack.enter_context(task.databases(settings, arguments.db)) if arguments.db else None
        on_done = stack.enter_context(ui.progress("Asking for facts", len(left)))
        file = stack.enter_context(_appended(out))
        rewritten, error = asyncio.run(_rewrite(left, client, databases, file, on_done))
    _report(left, rewritten, out, ui)
    ui.say(f"Cost: {sum((result.usage for result in rewritten), start=_lost(error)).described}")
    if error is not None:
        raise error
    ui.say(task.disclaimer)
    return 0


def _done(out: Path) -> set[str]:
    """Return the ids in an unfinished file, after its last line was removed if an interrupt had cut it off."""
    if not out.exists():
        return set()
    drop_cut_line(out)
    return {question.id for question in load_questions(out)} if out.read_bytes().strip() else set()


def _appended(out: Path) -> TextIO:
    """Open `out` before anything is paid for. Raises DataError when it cannot be written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return out.open("a", encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror}", hint="choose another place with --out") from error


async def _rewrite(
    questions: Sequence[Question],
    client: JudgeClient,
    databases: DatabasePool | None,
    file: TextIO,
    on_done: Callable[[int], None],
) -> tuple[list[Rewritten], SqlAgentError | None]:
    """Rewrite `questions`, several at once, and append each to `file` when it is done.

    After an error, which is returned, no other question is begun, but those that were are finished.
    """
    waiting, results, errors = iter(questions), list[Rewritten](), list[SqlAgentError]()

    async def work() -> None:
        while not errors and (question := next(waiting, None)) is not None:
            try:
                result = await _rewrite_one(question, client, databases)
            except SqlAgentError as error:
                errors.append(error)
                return
            file.write(result.question.model_dump_json() + "\n")
            file.flush()
            results.append(result)
            on_done(len(results))

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
    return results, errors[0] if errors else None


async def _rewrite_one(question: Question, client: JudgeClient, databases: DatabasePool | None) -> Rewritten:
    if not is_prose(question.answer, question.lang):
        return Rewritten(question, "", Usage())
    with databases.of(question.database) if databases else nullcontext() as database:
        return await facts_of_prose(question, client, database)


def _lost(error: SqlAgentError | None) -> Usage:
    """Return what was spent on the request that failed."""
    return (error.usage if isinstance(error, JudgeError) else None) or Usage()


def _report(questions: Sequence[Question], rewritten: Sequence[Rewritten], out: Path, ui: Ui) -> None:
    prose = {question.id for question in questions if is_prose(question.answer, question.lang)}
    left = [result for result in rewritten if result.problem]
    made = sum(result.question.id in prose for result in rewritten) - len(left)
    ui.say(f"{made} of {len(prose)} references of prose are facts now, in {out}")
    for result in left[:_SHOWN]:
        ui.say(f"  still prose: {result.question.id}: {result.problem}")
    if len(left) > _SHOWN:
        ui.say(f"  and {len(left) - _SHOWN} more")
