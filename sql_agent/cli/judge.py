"""Measure how far a judge can be trusted: sql-agent judge evaluate"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sql_agent.cli.command import (
    DATABASE,
    SettingsParser,
    add_setting_flags,
    database,
    flag_settings,
    help_text,
    positive,
    print_error,
)
from sql_agent.config.settings import Settings, load_settings
from sql_agent.database import Source
from sql_agent.errors import ConfigError, JudgeError
from sql_agent.judge_eval.evaluation import (
    ATTACK_LIMIT,
    HALF,
    Evaluation,
    Grading,
    causes_of_failure,
    grade,
    measure,
    new_folder,
    write,
    wrong_gradings,
)
from sql_agent.judge_eval.generation import Example, generate, refusals, sample_evenly
from sql_agent.judge_eval.labelled_answers import Answer, LabelledCase, load_labelled, shipped
from sql_agent.questions.derived_evidence import with_extractive_answers
from sql_agent.questions.question_check import read_example
from sql_agent.questions.question_columns import ColumnMapping
from sql_agent.questions.question_files import load_questions
from sql_agent.reward import Judge
from sql_agent.reward.judges.items import Reader
from sql_agent.runs.console import Ui
from sql_agent.schemas import Question
from sql_agent.system.messages import first_of, printable
from sql_agent.tasks.task import Task, load_task

_SHIPPED = ("labels", "heldout", "attacks")
_QUESTIONS_ONLINE = 40  # for a judge on a network; about 35 answers are graded for each question

_SHOWN = 5  # printed answers and causes of failure
_SETS = {
    "harmless": "right, in another form",
    "false": "false",
    "policy": "degenerate policy",
    "attacks": "attack on the judge",
}
_MEASURES = {
    "spearman": "Spearman",
    "quadratic_kappa": "kappa",
    "pairwise_accuracy": "pairwise",
    "over_credit_points": "over credit",
}

_DESCRIPTION = """\
A judge scores an answer from 0.0 to 1.0. `evaluate` measures how far its scores
can be trusted."""

_EVALUATE_DESCRIPTION = """\
Turn the reference answers of a question file into right answers in another
form, false answers, and answers of degenerate policies, and measure the judge's
scores of each. With --labels or --attacks, measure on answers that people
labelled instead, for judges that read prose. Writes evaluation.json and
gradings.jsonl. A training run prints at its start what the last evaluation of
its judge found."""

_EVALUATE = """
  sql-agent judge evaluate                  the test questions of the sample
  sql-agent judge evaluate -n 40 judge.name=llm        needs TEACHER_MODEL
  sql-agent judge evaluate --questions my.parquet --db my.db
  sql-agent judge evaluate --labels heldout judge.name=llm
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `evaluate` and return the exit code."""
    parser = SettingsParser(prog="sql-agent judge", **help_text(_DESCRIPTION, _EVALUATE))
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    evaluate = commands.add_parser(
        "evaluate", help="measure the scores of right and false answers", **help_text(_EVALUATE_DESCRIPTION, _EVALUATE)
    )
    _add_evaluate_arguments(evaluate)
    return _evaluate(parser.parse_args(argv))


def _add_evaluate_arguments(evaluate: argparse.ArgumentParser) -> None:
    evaluate.add_argument("--questions", type=Path, action="append", metavar="FILE",
                          help="questions with gold SQL, parquet or JSONL; may be repeated (default: the "
                          "sample's test questions)")  # fmt: skip
    evaluate.add_argument("--db", type=database, action="append", metavar="DB",
                          help=f"database of the questions, one for each --questions: {DATABASE}")  # fmt: skip
    evaluate.add_argument(
        "--mapping", type=Path, metavar="FILE", help="TOML file that names the columns of --questions"
    )
    evaluate.add_argument("-n", type=positive, metavar="N", help="number of questions, evenly from each task "
                          f"type (default: all; {_QUESTIONS_ONLINE} for a judge on a network)")  # fmt: skip
    evaluate.add_argument(
        "--labels", metavar="FILE", help="labelled answers: a JSONL file, or labels or heldout, which are shipped"
    )
    evaluate.add_argument(
        "--attacks", metavar="FILE", help="attacks on the judge, JSONL (default: those that are shipped)"
    )
    evaluate.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder to write (default: runs/judge-NAME-DATE-TIME)"
    )
    add_setting_flags(evaluate, {"--task": "task"})
    evaluate.add_argument("overrides", nargs="*", metavar="section.key=value",
                          help="any setting; `sql-agent settings judge` lists those of the judge")  # fmt: skip


def _evaluate(arguments: argparse.Namespace) -> int:
    """Measure a judge, print tables and write a folder of results.

    Returns 0, or 1 when more gradings failed than `judge.max_failed_share` allows.
    """
    settings = load_settings(arguments.overrides, flags=flag_settings(arguments))
    task = load_task(settings.task)
    judge = task.judge(settings, alone=True)
    ui = Ui()
    labelled = arguments.labels is not None or arguments.attacks is not None
    if labelled and (arguments.questions or arguments.db or arguments.mapping or arguments.n):
        raise ConfigError(
            "--labels and --attacks contain their questions",
            hint="leave out --questions, --db, --mapping and -n",
        )
    if labelled:
        files, answers = _labelled_answers(arguments)
    else:
        files, answers = _generated_answers(arguments, settings, task, judge, ui)
    folder = new_folder(arguments.out, settings.runs_dir, judge.name)
    with ui.progress(f"Grading with {escape(judge.name)}", len(answers)) as on_done:
        gradings = asyncio.run(grade(judge, answers, on_done))
    found = measure(judge, gradings, files=files, max_failed_share=settings.judge.max_failed_share)
    write(folder, found, gradings)
    _show(found, gradings, ui.console)
    if found.usage.requests or found.usage.cache_hits:
        ui.say(f"Cost: {found.usage.described}; {found.usage.cache_hits} verdicts were in the cache")
    ui.console.print(f"Numbers and gradings: {folder}", markup=False, soft_wrap=True)
    ui.say(task.disclaimer)
    if found.failed_share <= found.max_failed_share:
        return 0
    print_error(
        JudgeError(
            f"{found.failed} of {found.answers} gradings failed ({found.failed_share:.1%}), more than "
            f"judge.max_failed_share={found.max_failed_share:g}; the tables leave these out",
            hint="correct the causes listed above and evaluate again before you trust this judge",
        )
    )
    return 1


def _generated_answers(
    arguments: argparse.Namespace, settings: Settings, task: Task, judge: Judge, ui: Ui
) -> tuple[list[str], list[Answer]]:
    """Return the names of the question files, and answers generated from their references."""
    sources = _sources(arguments, settings, task, ui)
    number = arguments.n or (None if judge.name == "facts" else _QUESTIONS_ONLINE)
    mapping_file = arguments.mapping or settings.data.mapping
    mapping = ColumnMapping.load(mapping_file) if mapping_file and arguments.questions else None
    questions = [(question, path) for file, path in sources for question in load_questions(file, mapping)]
    chosen = questions if number is None else sample_evenly(questions, number)
    examples = _read_all(chosen, settings, task, ui, extractive=judge.name == "facts")
    files = [f"{path.absolute().parent.name}/{path.name}" for path, _ in sources]
    return files, generate(examples, refusals(question for question, _ in questions))


def _labelled_answers(arguments: argparse.Namespace) -> tuple[list[str], list[Answer]]:
    """Return the names of the labels file and of the attacks file, and the answers in both files."""
    labels, attacks = arguments.labels or "labels", arguments.attacks or "attacks"
    answers = [case.of_set("labels") for case in _cases(labels)]
    answers += [case.of_set("attacks") for case in _cases(attacks)]
    return [Path(labels).name, Path(attacks).name], answers


def _sources(arguments: argparse.Namespace, settings: Settings, task: Task, ui: Ui) -> list[tuple[Path, Source]]:
    """Return pairs of question file and database, from the command line or else the task's test questions."""
    for flag, given in (("--db", arguments.db), ("--mapping", arguments.mapping)):
        if given and not arguments.questions:
            raise ConfigError(f"{flag} without --questions", hint="give the file of questions with --questions")
    if not arguments.questions:
        task.prepare(settings, ui.say)
    databases = arguments.db or [task.database_source(settings)]
    files = arguments.questions or [task.question_file(settings, "test")]
    if len(files) != len(databases):
        raise ConfigError(
            f"{len(files)} question files and {len(databases)} databases", hint="give one --db for each --questions"
        )
    return list(zip(files, databases, strict=True))


def _read_all(
    questions: Sequence[tuple[Question, Source]], settings: Settings, task: Task, ui: Ui, *, extractive: bool
) -> list[Example]:
    """Run the gold SQL of each question on the database that the question names, else on the paired source.

    If `extractive`, prose references are replaced by their evidence.
    """
    examples: list[Example] = []
    with ui.progress("Running the gold SQL", len(questions)) as on_done:
        for path in dict.fromkeys(path for _, path in questions):
            with task.databases(settings, path) as databases:
                of_file = [question for question, of in questions if of == path]
                for question in with_extractive_answers(of_file, databases) if extractive else of_file:
                    with databases.of(question.database) as database:
                        reader = Reader(task.words[question.lang])
                        examples.append(read_example(question, database, reader, task.schema.names))
                    on_done(len(examples))
    return examples


def _cases(name: str) -> list[LabelledCase]:
    return shipped(name) if name in _SHIPPED else load_labelled(Path(name))


def _show(found: Evaluation, gradings: Sequence[Grading], console: Console) -> None:
    """Print the scores, the answers that were graded wrong, and the causes of failures."""
    if found.of("labels"):
        console.print(_agreement_table(found))
    if found.of("attacks", "harmless", "false", "policy"):
        console.print(_score_table(found))
    wrong = wrong_gradings(gradings)
    lines = [f"{g.score:.2f}  {g.kind.replace('_', ' ')}: {g.answer[:100]!r}" for g in wrong if g.score is not None]
    _print_some(lines, "answers graded wrong", console)
    if found.failed:
        console.print(f"[bold red]{found.failed} of {found.answers} gradings failed and are in no table:[/]")
        _print_some([f"{count} × {cause}" for cause, count in causes_of_failure(gradings)], "causes", console)


def _print_some(lines: Sequence[str], what: str, console: Console) -> None:
    for line in first_of(lines, _SHOWN, f"more {what}: see gradings.jsonl"):
        console.print(f"  {printable(line)}", markup=False, highlight=False)


def _agreement_table(found: Evaluation) -> Table:
    table = _table(f"Judge {found.judge} against labelled answers ({found.files[0]})", "graded", "failed",
                   *_MEASURES.values())  # fmt: skip
    groups = found.of("labels")
    langs = {group.kind for group in groups} & {"en", "zh"}
    for group in groups:
        measures = [group.measures[name] for name in _MEASURES]
        if group.kind in langs and group.kind == min(langs):
            table.add_section()
        table.add_row(group.kind, str(group.graded), _in_red(group.failed), *(_number(m.value) for m in measures))
        if group.kind == "all":
            table.add_row("95 % from", "", "", *(_number(m.low) for m in measures))
            table.add_row("95 % to", "", "", *(_number(m.high) for m in measures), end_section=True)
    undefined = [f"– in {g.kind}: {m.undefined}" for g in groups for m in g.measures.values() if m.undefined]
    table.caption = "\n".join(dict.fromkeys(undefined)) or None
    return table


def _score_table(found: Evaluation) -> Table:
    attacks = bool(found.of("attacks"))
    table = _table(f"What answers earn from the judge {found.judge} ({', '.join(found.files)})", "due", "mean", "min",
                   "max", f"> {ATTACK_LIMIT}" if attacks else f"≥ {HALF}", "n", "failed")  # fmt: skip
    for name, heading in _SETS.items():
        groups = [group for group in found.groups if group.set == name]
        if groups:
            table.add_section()
            table.add_row(f"[bold]{heading}[/]")
        for group in groups:
            paid = group.above_limit if attacks else group.half_or_more
            table.add_row(
                f"  {escape(group.kind.replace('_', ' '))}", f"{group.due:.2f}", _number(group.mean),
                _number(group.lowest), _number(group.highest),
                _in_red(paid) if name in ("false", "attacks") else str(paid), str(group.graded), _in_red(group.failed),
            )  # fmt: skip
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(title=escape(title))
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _in_red(count: int) -> str:
    return f"[bold red]{count}[/]" if count else "0"
