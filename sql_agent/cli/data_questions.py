"""Make train, val and test questions about a database. Each question has gold SQL
that was run, the answer, and evidence: the cells that contain the answer. With
--writer llm the model TEACHER_MODEL rewords questions; a new text is used only
if the teacher, given only the text and the tables, writes a statement that
finds the reference answer. After an interrupt the same command continues."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from sql_agent.cli.command import DATABASE, Commands, add_command, add_setting_flags, database, positive, share
from sql_agent.cli.data_teacher import ask_teacher, say_some
from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings import Settings, load_settings
from sql_agent.database import Source, open_database
from sql_agent.errors import ConfigError
from sql_agent.questions.question_writer import MOST_WORDINGS, QuestionWriter, Rewriting
from sql_agent.questions.rewrite_checks import Half, NamesIn, UsedTexts, kept_texts
from sql_agent.questions.teacher import ProgressLog, TeacherRun
from sql_agent.reward.factory import teacher_client
from sql_agent.runs.console import TextTable, Ui, print_table
from sql_agent.schemas import Lang, Question, Style
from sql_agent.tasks.described import generate
from sql_agent.tasks.described.described_task import questions_folder as described_folder
from sql_agent.tasks.described.description import read_description
from sql_agent.tasks.described.generate import PATIENT, Made, count_by_type
from sql_agent.tasks.medical.medical_task import TASK, make_question_files, questions_folder
from sql_agent.tasks.task import DESCRIBED, Task, load_task

_EXAMPLES = """\
  sql-agent data questions --db var/sample_en.db
  sql-agent data questions --db /data/medical.db --per-type 200 --out mine
  sql-agent data questions --db /data/medical.db --style template --out formal
  sql-agent data questions --task shop.toml
  sql-agent data questions --db my.db --writer llm --writer-share 0.5
  sql-agent data questions --task shop.toml --writer llm --wordings 3
"""

_LOG_NAME = "rewritten.jsonl"
# The splits train and val may share wordings. The split test is reworded after them and uses none of their wordings.
_PASSES: Mapping[Half, tuple[str, ...]] = {"train": ("train", "val"), "test": ("test",)}


def add_questions(commands: Commands) -> None:
    summary = "make questions about a database"
    parser = add_command(commands, "questions", _run, summary, __doc__ or "", _EXAMPLES)
    add = parser.add_argument
    add("--db", type=database, metavar="DB", help=f"database to ask about: {DATABASE} (default: that of --task "
        "NAME.toml)")  # fmt: skip
    add_setting_flags(parser, {"--task": "task"})
    add("--out", type=Path, metavar="FOLDER", help="folder to write (default: var/questions_DATABASE, plus _STYLE "
        "unless the style is mixed)")  # fmt: skip
    add("--seed", type=int, default=0, metavar="N", help="seed of the choice of questions (default: 0)")
    add("--per-type", type=positive, metavar="N", help="number of questions for each task type (default: by the size "
        "of the database)")  # fmt: skip
    add("--style", choices=get_args(Style), default="mixed", help="template: plain sentences with the labels of "
        "columns; mixed: also as people ask (default: mixed)")  # fmt: skip
    add("--lang", choices=get_args(Lang), help="language of the questions (default: the language of the names in the "
        "database)")  # fmt: skip
    add("--writer", choices=("llm",), help="llm: TEACHER_MODEL rewords the questions (default: no rewording)")
    add("--writer-share", type=share, metavar="SHARE", help="share of the questions to reword, 0 to 1 (default: 1)")
    add("--wordings", type=int, choices=range(1, MOST_WORDINGS + 1), metavar="N", help="new texts of each question, as "
        f"different people ask it, 1 to {MOST_WORDINGS}; each text after the first is a further training question "
        "(default: 1)")  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    ui = Ui(wraps=True)
    name = load_settings(flags=arguments.flags).task
    source, task, folder, make = _described(arguments, name) if name.endswith(DESCRIBED) else _medical(arguments)
    rewrite = _rewriting(arguments, source, task, folder, ui)
    made = make(seed=arguments.seed, per_type=arguments.per_type, style=arguments.style, rewrite=rewrite, say=ui.say)
    splits = {**made, "all": [question for questions in made.values() for question in questions]}
    counts = {split: count_by_type(questions) for split, questions in splits.items()}
    wanted = sorted(counts["all"])
    rows = [(task_type, [str(of[task_type]) for of in counts.values()]) for task_type in wanted]
    totals = ("all", [str(sum(of.values())) for of in counts.values()])
    print_table(TextTable("Questions of each task type", list(splits), [rows, [totals]]), ui.console)
    ui.say(f"{folder}: train.parquet, val.parquet, test.parquet, qa_dataset.jsonl")
    for split in made:
        if missing := set(wanted) - set(counts[split]):
            ui.say(f"{split} has no question of: {', '.join(sorted(missing))}")
    return 0


def _medical(arguments: argparse.Namespace) -> tuple[Source, Task, Path, Callable[..., Made]]:
    db = arguments.db
    if db is None:
        raise ConfigError("--db is missing", hint="give the database to ask about, or --task NAME.toml")
    folder = arguments.out or questions_folder(db, arguments.style)
    return db, TASK, folder, partial(make_question_files, db, folder, arguments.lang)


def _described(arguments: argparse.Namespace, name: str) -> tuple[Source, Task, Path, Callable[..., Made]]:
    if arguments.lang is not None:
        raise ConfigError(f"--lang is given, but {name} states the language", hint="leave out --lang")
    path, task = Path(name), load_task(name)
    source = arguments.db or task.database_source(load_settings())
    folder = arguments.out or described_folder(path, arguments.style)
    return source, task, folder, partial(generate.make_question_files, read_description(path), source, task, folder)


def _rewriting(
    arguments: argparse.Namespace, source: Source, task: Task, folder: Path, ui: Ui
) -> Callable[[Made, NamesIn], Made] | None:
    """Return a function that rewords questions as the flags say, or None without --writer.

    The function skips questions that the log in `folder` has, and raises JudgeError if the teacher cannot be asked.
    """
    if arguments.writer is None:
        for flag, value in (("--writer-share", arguments.writer_share), ("--wordings", arguments.wordings)):
            if value is not None:
                raise ConfigError(f"{flag} needs a writer", hint="add --writer llm")
        return None
    settings = load_settings()
    client = teacher_client(settings.judge, TeacherSettings())
    share = 1.0 if arguments.writer_share is None else arguments.writer_share

    def rewrite(made: Made, names_in: NamesIn) -> Made:
        chosen = {split: _chosen(questions, share, arguments.seed) for split, questions in made.items()}
        log = ProgressLog(folder / _LOG_NAME, Rewriting)
        used = UsedTexts(question.question for questions in made.values() for question in questions)
        with open_database(source, task.schema, PATIENT) as opened:
            tables = {lang: task.describe(lang, opened, settings) for lang in get_args(Lang)}
            writer = QuestionWriter(
                client, opened, arguments.wordings or 1, tables, task.schema.names, task.words, names_in, used
            )
            return _rewrite(made, chosen, writer, log, settings=settings, ui=ui)

    return rewrite


def _rewrite(
    made: Made, chosen: Made, writer: QuestionWriter, log: ProgressLog[Rewriting], *, settings: Settings, ui: Ui
) -> Made:
    """Reword the `chosen` questions of `made`, and print a report."""
    groups = {half: [q for split in splits for q in chosen[split]] for half, splits in _PASSES.items()}
    half_of = {question.id: half for half, questions in groups.items() for question in questions}
    several = {question.id for question in chosen["train"]}
    for question in (question for questions in groups.values() for question in questions):
        for text in log.entries[question.id].texts if question.id in log.entries else ():
            writer.used.add(text, kept_texts(question), half_of[question.id])

    ask_teacher(
        "Rewriting questions",
        groups.values(),
        log,
        lambda q: writer.rewrite(q, half_of[q.id], writer.wordings if q.id in several else 1),
        settings,
        ui,
        digest=lambda q: writer.digest(q, half_of[q.id]),
        report=lambda run: _report_rewriting([log.entries[n] for n in half_of if n in log.entries], run, log.path, ui),
    )

    def reworded(question: Question) -> list[Question]:
        """Return copies of `question`, one for each new text; without a new text, only the question as it is."""
        entry = log.entries.get(question.id) if question.id in half_of else None
        first, *more = (entry.texts if entry else []) or [question.question]
        further = [
            question.model_copy(update={"id": f"{question.id}-{number}", "question": text})
            for number, text in enumerate(more, 2)
        ]
        return [question.model_copy(update={"question": first}), *further]

    return {split: [each for q in questions for each in reworded(q)] for split, questions in made.items()}


def _report_rewriting(entries: Sequence[Rewriting], run: TeacherRun, path: Path, ui: Ui) -> None:
    tried = [each for entry in entries for each in entry.tried]
    problems = Counter(each.problem.reason for each in tried if each.problem)
    ui.say(f"{len(tried) - problems.total()} of {len(tried)} new wordings are used; {path} lists them all")
    if problems:
        ui.say(f"  {problems.total()} are unused: {', '.join(f'{r} {n}' for r, n in problems.most_common())}")
    if kept := sum(not entry.texts for entry in entries):
        ui.say(f"  {kept} of {len(entries)} questions keep their wording")
    if run.failed:
        ui.say(f"  {len(run.failed)} questions keep their wording because the teacher failed; the same command retries")
        say_some((f"  {number}: {error}" for number, error in run.failed.items()), ui)


def _chosen(questions: Sequence[Question], share: float, seed: int) -> list[Question]:
    """Return a random `share` (0–1) of the questions. With the same `seed`, a larger share contains a smaller one."""
    order = list(questions)
    random.Random(f"{seed} writer").shuffle(order)
    return order[: round(share * len(order))]
