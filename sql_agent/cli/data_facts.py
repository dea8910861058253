"""Turn references of prose into facts with the teacher model: sql-agent data facts FILE --out FILE"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path

from sql_agent.cli.database_argument import DATABASE, database
from sql_agent.config.settings import TeacherSettings, load_settings
from sql_agent.data.prose_facts import Rewritten, facts_of_prose
from sql_agent.data.question_columns import ColumnMapping
from sql_agent.data.question_files import load_questions
from sql_agent.data.task import load_task
from sql_agent.database import DatabasePool
from sql_agent.errors import ConfigError
from sql_agent.reward.factory import teacher_client
from sql_agent.reward.judges.client import JudgeClient
from sql_agent.reward.judges.items import is_prose
from sql_agent.schemas import Question, Usage
from sql_agent.system.files import drop_cut_line
from sql_agent.tracking.console import Ui

DESCRIPTION = """\
Turn references of prose into facts, which the judge `facts` can grade. The
model TEACHER_MODEL proposes them; each must stand to the letter in the evidence
or in a cell that the gold SQL returns, else the prose stays. Questions that are
already in --out are skipped, so after an interrupt the same command continues."""

EXAMPLES = """\
  sql-agent data facts my.jsonl --out my_facts.jsonl --db my.db
"""

_AT_ONCE = 16  # questions; the file grows by as many at a time
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
    if out.suffix != ".jsonl":
        raise ConfigError(f"--out {out} is no .jsonl file", hint="name a file that ends in .jsonl")
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
        rewritten = asyncio.run(_rewrite(left, client, databases, out, on_done))
    _report(left, rewritten, out, ui)
    ui.say(task.disclaimer)
    return 0


def _done(out: Path) -> set[str]:
    """Return the ids in an unfinished file, after its last line was removed if an interrupt had cut it off."""
    if not out.exists():
        return set()
    drop_cut_line(out)
    return {question.id for question in load_questions(out)} if out.read_bytes().strip() else set()


async def _rewrite(
    questions: Sequence[Question],
    client: JudgeClient,
    databases: DatabasePool | None,
    out: Path,
    on_done: Callable[[int], None],
) -> list[Rewritten]:
    """Rewrite `questions`, several at once, and append them to `out` in order."""
    results: list[Rewritten] = []
    for start in range(0, len(questions), _AT_ONCE):
        batch = questions[start : start + _AT_ONCE]
        results += await asyncio.gather(*(_rewrite_one(question, client, databases) for question in batch))
        with out.open("a", encoding="utf-8", newline="\n") as file:
            file.writelines(result.question.model_dump_json() + "\n" for result in results[start:])
        on_done(len(results))
    return results


async def _rewrite_one(question: Question, client: JudgeClient, databases: DatabasePool | None) -> Rewritten:
    if not is_prose(question.answer, question.lang):
        return Rewritten(question, "", Usage())
    with databases.of(question.database) if databases else nullcontext() as database:
        return await facts_of_prose(question, client, database)


def _report(questions: Sequence[Question], rewritten: Sequence[Rewritten], out: Path, ui: Ui) -> None:
    prose = sum(is_prose(question.answer, question.lang) for question in questions)
    left = [result for result in rewritten if result.problem]
    ui.say(f"{prose - len(left)} of {prose} references of prose are facts now, in {out}")
    for result in left[:_SHOWN]:
        ui.say(f"  still prose: {result.question.id}: {result.problem}")
    if len(left) > _SHOWN:
        ui.say(f"  and {len(left) - _SHOWN} more")
    usage = sum((result.usage for result in rewritten), start=Usage())
    ui.say(f"Cost: {usage.described}")
