"""Make questions about a database, and have the teacher model reword them: sql-agent data questions"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from rich.table import Table

from sql_agent.cli.command import DATABASE, Commands, add_command, add_setting_flags, database, flag_settings, positive
from sql_agent.cli.data_teacher import asking, say_done, say_some
from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings import Settings, load_settings
from sql_agent.database import Source, open_database
from sql_agent.errors import ConfigError
from sql_agent.questions.question_writer import QuestionWriter, Rewriting
from sql_agent.questions.rewrite_checks import Half, TaskChecks, UsedTexts, kept_texts
from sql_agent.questions.teacher import ProgressLog, TeacherRun
from sql_agent.reward.factory import teacher_client
from sql_agent.runs.console import Ui, open_console
from sql_agent.schemas import Lang, Question, Style, Usage
from sql_agent.tasks.described import generate
from sql_agent.tasks.described.described_task import questions_folder as described_folder
from sql_agent.tasks.described.description import read_description
from sql_agent.tasks.described.generate import PATIENT, Made, count_by_type
from sql_agent.tasks.medical.medical_task import TASK, make_question_files, questions_folder
from sql_agent.tasks.task import DESCRIBED, Task, load_task

_DESCRIPTION = """\
Make train, val and test questions about a database. Each has gold SQL, which
was run, the answer, and evidence: the cells that contain the answer. With
--writer llm the model TEACHER_MODEL rewords them; a new text is used only if
the teacher, given the text and the rows, gives the reference answer. After an
interrupt the same command continues."""

_EXAMPLES = """\
  sql-agent data questions --db var/sample_en.db
  sql-agent data questions --db /data/medical.db --per-type 200 --out mine
  sql-agent data questions --db /data/medical.db --style template --out formal
  sql-agent data questions --task shop.toml
  sql-agent data questions --db my.db --writer llm --writer-share 0.5
"""

_LOG_NAME = "rewritten.jsonl"
# Train and val share wordings; test is rewritten after them and never reuses their wordings.
_PASSES: Mapping[Half, tuple[str, ...]] = {"train": ("train", "val"), "test": ("test",)}


def add_questions(commands: Commands) -> None:
    summary = "make questions about a database"
    parser = add_command(commands, "questions", summary, _DESCRIPTION, _EXAMPLES)
    parser.set_defaults(run=_run)
    parser.add_argument("--db", type=database, metavar="DB",
                        help=f"database to ask about: {DATABASE} (default: that of --task NAME.toml)")  # fmt: skip
    add_setting_flags(parser, {"--task": "task"})
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="folder to write (default: var/questions_DATABASE, "
                        "with _STYLE unless mixed)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the choice of questions (default: 0)")
    parser.add_argument("--per-type", type=positive, metavar="N", help="questions of each task type (default: by the "
                        "size of the database)")  # fmt: skip
    parser.add_argument("--style", choices=get_args(Style), default="mixed", help="template: plain sentences with "
                        "the labels of columns; mixed: these, and as people ask (default: mixed)")  # fmt: skip
    parser.add_argument("--lang", choices=get_args(Lang), help="language of the questions (default: that of the names "
                        "in the database)")  # fmt: skip
    parser.add_argument("--writer", choices=("llm",), help="llm: TEACHER_MODEL rewords the questions (default: they "
                        "stay as they are)")  # fmt: skip
    parser.add_argument("--writer-share", type=_share, metavar="SHARE", help="share of the questions to reword, above "
                        "0 and up to 1 (default: 1)")  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    console = open_console()
    ui = Ui(console, wraps=True)
    name = load_settings(flags=flag_settings(arguments)).task
    made, folder = _described(arguments, name, ui) if name.endswith(DESCRIBED) else _medical(arguments, ui)
    wanted = sorted(count_by_type(question for questions in made.values() for question in questions))
    console.print(_table(made, wanted))
    console.print(f"{folder}: train.parquet, val.parquet, test.parquet, qa_dataset.jsonl", soft_wrap=True)
    for split, questions in made.items():
        if missing := set(wanted) - set(count_by_type(questions)):
            console.print(f"{split} has no question of: {', '.join(sorted(missing))}", soft_wrap=True)
    return 0


def _medical(arguments: argparse.Namespace, ui: Ui) -> tuple[Made, Path]:
    """Make questions about a medical database; return the questions and their folder."""
    if arguments.db is None:
        raise ConfigError("--db is missing", hint="give the database to ask about, or --task NAME.toml")
    folder = arguments.out or questions_folder(arguments.db, arguments.style)
    made = make_question_files(
        arguments.db,
        folder,
        arguments.lang,
        seed=arguments.seed,
        per_type=arguments.per_type,
        style=arguments.style,
        rewrite=_rewriting(arguments, arguments.db, TASK, folder, ui),
        say=ui.say,
    )
    return made, folder


def _described(arguments: argparse.Namespace, name: str, ui: Ui) -> tuple[Made, Path]:
    """Make questions about the database that the file `name` describes; return the questions and their folder."""
    if arguments.lang is not None:
        raise ConfigError(f"--lang is not for {name}", hint="leave it out: the file has the language")
    path, task = Path(name), load_task(name)
    source = arguments.db or task.database_source(load_settings())
    folder = arguments.out or described_folder(path)
    made = generate.make_question_files(
        read_description(path),
        source,
        task,
        folder,
        seed=arguments.seed,
        per_type=arguments.per_type,
        style=arguments.style,
        rewrite=_rewriting(arguments, source, task, folder, ui),
        say=ui.say,
    )
    return made, folder


def _table(made: Mapping[str, Sequence[Question]], wanted: Sequence[str]) -> Table:
    table = Table("task type", *made, "all")
    counts = {split: count_by_type(questions) for split, questions in made.items()}
    for task_type in wanted:
        row = [counts[split][task_type] for split in made]
        table.add_row(task_type, *map(str, (*row, sum(row))))
    totals = [len(questions) for questions in made.values()]
    table.add_section()
    table.add_row("all", *map(str, (*totals, sum(totals))))
    return table


def _rewriting(
    arguments: argparse.Namespace, source: Source, task: Task, folder: Path, ui: Ui
) -> Callable[[Made, TaskChecks], Made] | None:
    """Return the function that rewords questions as the flags say; None without --writer.

    Raises ConfigError when the flags contradict each other or no teacher is set. The function raises JudgeError when
    the teacher cannot be asked. The next call skips the questions already logged in `folder`.
    """
    if arguments.writer is None:
        if arguments.writer_share is not None:
            raise ConfigError("--writer-share needs a writer", hint="add --writer llm")
        return None
    settings = load_settings()
    client = teacher_client(settings.judge, TeacherSettings())
    share = 1.0 if arguments.writer_share is None else arguments.writer_share

    def rewrite(made: Made, checks: TaskChecks) -> Made:
        chosen = {split: _chosen(questions, share, arguments.seed) for split, questions in made.items()}
        log = ProgressLog(folder / _LOG_NAME, Rewriting)
        used = UsedTexts(question.question for questions in made.values() for question in questions)
        with open_database(source, task.schema, PATIENT) as opened:
            writer = QuestionWriter(client, opened, task.schema.names, task.words, checks, used)
            return _rewrite(made, chosen, writer, log, settings=settings, ui=ui)

    return rewrite


def _rewrite(
    made: Made, chosen: Made, writer: QuestionWriter, log: ProgressLog[Rewriting], *, settings: Settings, ui: Ui
) -> Made:
    """Return `made` with the `chosen` questions reworded, and print a report."""
    left: dict[Half, list[Question]] = {half: [] for half in _PASSES}
    for half, splits in _PASSES.items():
        for question in (question for split in splits for question in chosen[split]):
            entry = log.find(question, writer.digest(question, half))
            if entry is None:
                left[half].append(question)
            elif entry.problem is None:
                writer.used.add(entry.text, kept_texts(question), half)
    ids = {question.id for questions in chosen.values() for question in questions}
    say_done(len(ids & log.entries.keys()), len(ids), log.path, ui)

    async def ask(half: Half, question: Question) -> Usage:
        entry, usage = await writer.rewrite(question, half)
        log.add(entry)
        return usage

    async def ask_all(run: TeacherRun) -> None:
        for half, questions in left.items():
            await run.ask_each(questions, partial(ask, half))

    with asking("Rewriting questions", sum(map(len, left.values())), settings, ui) as run:
        try:
            asyncio.run(ask_all(run))
        finally:
            entries = {number: entry for number, entry in log.entries.items() if number in ids}
            _report_rewriting(list(entries.values()), run, log.path, ui)
    texts = {number: entry.text for number, entry in entries.items() if entry.problem is None}
    return {
        split: [q.model_copy(update={"question": texts[q.id]}) if q.id in texts else q for q in questions]
        for split, questions in made.items()
    }


def _report_rewriting(entries: Sequence[Rewriting], run: TeacherRun, path: Path, ui: Ui) -> None:
    """Print how many questions were reworded, and why others keep their wording."""
    problems = [entry.problem.reason for entry in entries if entry.problem]
    ui.say(f"{len(entries) - len(problems)} of {len(entries)} reworded questions are used; {path} lists them all")
    if problems:
        reasons = ", ".join(f"{reason} {count}" for reason, count in Counter(problems).most_common())
        ui.say(f"  {len(problems)} keep their wording, because of: {reasons}")
    if run.failed:
        ui.say(f"  {len(run.failed)} keep their wording, because the teacher failed; the same command asks again")
        say_some((f"  {number}: {error}" for number, error in run.failed.items()), ui)


def _chosen(questions: Sequence[Question], share: float, seed: int) -> list[Question]:
    """Return a random `share` (0–1) of the questions. With one `seed`, a larger share contains every smaller share."""
    order = list(questions)
    random.Random(f"{seed} writer").shuffle(order)
    return order[: round(share * len(order))]


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and up to 1")
    return share
