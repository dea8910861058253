"""Measure how far a judge can be trusted, and rescale its scores: sql-agent judge evaluate, sql-agent judge rescale"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from sql_agent.cli import rescale
from sql_agent.cli.database_argument import DATABASE, database
from sql_agent.cli.exit_codes import print_error
from sql_agent.cli.judge_tables import show_agreement, show_robustness
from sql_agent.cli.parser import SettingsParser, help_text, positive
from sql_agent.config.settings import Settings, load_settings
from sql_agent.database import Source
from sql_agent.errors import ConfigError, JudgeError
from sql_agent.judge_eval.dataset import LabelledCase, load_labelled, shipped
from sql_agent.judge_eval.evaluate import JudgeEvaluation, grade_all, measure, write_numbers
from sql_agent.judge_eval.examples import Example, refusals, sample_evenly
from sql_agent.judge_eval.generation import generate
from sql_agent.judge_eval.grading import new_folder
from sql_agent.judge_eval.page import write_page
from sql_agent.judge_eval.robustness import (
    Robustness,
    grade_generated,
    measure_robustness,
    write_robustness,
)
from sql_agent.judge_eval.robustness_page import write_robustness_page
from sql_agent.judge_eval.trust import (
    ENOUGH,
    ENOUGH_QUESTIONS,
    reads_prose,
    save_evaluation,
    save_robustness,
)
from sql_agent.questions.derived_evidence import with_extractive_answers
from sql_agent.questions.judge_examples import read_example
from sql_agent.questions.question_columns import ColumnMapping
from sql_agent.questions.question_files import load_questions
from sql_agent.reward import Judge
from sql_agent.runs.console import Ui
from sql_agent.schemas import Question, Usage
from sql_agent.system.files import make_writable
from sql_agent.tasks.task import Task, load_task

_SHIPPED = ("labels", "heldout", "attacks")
_QUESTIONS_ONLINE = 40  # about 35 answers each

_DESCRIPTION = """\
A judge gives 0.0 to 1.0 of an answer's reward. `evaluate` says how far it can
be trusted, `rescale` spreads its scores where they crowd."""

_EVALUATE_DESCRIPTION = """\
Turn the reference answers of a question file into answers that say the same in
another form, into false ones, and into those of policies that understand
nothing, and measure what the judge pays for each. With --labels or --attacks,
measure on answers that people labelled instead, for judges that read prose.
Writes numbers, every grading and a page; training refuses a judge that was
found too weak."""

_EVALUATE = """
  sql-agent judge evaluate                  the test questions of the sample
  sql-agent judge evaluate -n 40 judge.name=llm        needs TEACHER_MODEL
  sql-agent judge evaluate --questions my.parquet --db my.db
  sql-agent judge evaluate --labels heldout judge.name=llm
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `evaluate` or `rescale` and return the exit code."""
    parser = SettingsParser(prog="sql-agent judge", **help_text(_DESCRIPTION, _EVALUATE + rescale.EXAMPLES))
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    evaluate = commands.add_parser(
        "evaluate", help="measure what right and false answers earn", **help_text(_EVALUATE_DESCRIPTION, _EVALUATE)
    )
    _add_evaluate_arguments(evaluate)
    evaluate.set_defaults(run=_evaluate)
    scores = commands.add_parser(
        "rescale", help="look at a judge's scores and spread them", **help_text(rescale.DESCRIPTION, rescale.EXAMPLES)
    )
    rescale.add_arguments(scores)
    scores.set_defaults(run=rescale.run)
    arguments = parser.parse_args(argv)
    return int(arguments.run(arguments))


def _add_evaluate_arguments(evaluate: argparse.ArgumentParser) -> None:
    evaluate.add_argument("--questions", type=Path, action="append", metavar="FILE",
                          help="parquet or JSONL with gold SQL; may be repeated (default: the sample's)")  # fmt: skip
    evaluate.add_argument("--db", type=database, action="append", metavar="DB",
                          help=f"{DATABASE} that the questions are about, one for each --questions")  # fmt: skip
    evaluate.add_argument(
        "--mapping", type=Path, metavar="FILE", help="TOML file that names the columns of --questions"
    )
    evaluate.add_argument("-n", type=positive, metavar="N", help="questions, evenly from each task type "
                          f"(default: all; {_QUESTIONS_ONLINE} for a judge that is asked over a network)")  # fmt: skip
    evaluate.add_argument("--labels", metavar="FILE", help="labelled answers, JSONL, or: labels, heldout")
    evaluate.add_argument("--attacks", metavar="FILE", help="attacks to grade too, JSONL; default: the shipped ones")
    evaluate.add_argument("--out", type=Path, metavar="FOLDER", help="default: runs/judge-<name>-<date-time>")
    evaluate.add_argument("overrides", nargs="*", metavar="section.key=value",
                          help="any setting; `sql-agent settings judge` lists those of judges")  # fmt: skip


def _evaluate(arguments: argparse.Namespace) -> int:
    """Measure a judge on generated or on labelled answers, print tables and write a folder of results.

    Returns 1 when more gradings failed than `judge.max_failed_share` allows.
    """
    settings = load_settings(arguments.overrides)
    make_writable(settings.judge.evaluations_dir, "judge.evaluations_dir")  # before what takes minutes or money
    task = load_task(settings.task)
    judge = task.judge(settings, alone=True)
    ui = Ui()
    labelled = arguments.labels is not None or arguments.attacks is not None
    if labelled and (arguments.questions or arguments.db or arguments.mapping or arguments.n):
        raise ConfigError(
            "--labels and --attacks bring their own questions",
            hint="leave out --questions, --db, --mapping and -n",
        )
    found, usage, page = (_on_labels if labelled else _on_generated)(arguments, settings, task, judge, ui)
    _say_cost(usage, ui)
    ui.console.print(f"Page: {page}", markup=False, soft_wrap=True)
    ui.say(task.disclaimer)
    if not found.too_many_failed:
        return 0
    print_error(
        JudgeError(
            f"{found.failed} of {found.answers} gradings failed ({found.failed_share:.1%}), more than "
            f"judge.max_failed_share={found.max_failed_share:g}; the numbers are those of the rest",
            hint="remove the causes named above and evaluate again before you trust this judge",
        )
    )
    return 1


def _on_generated(
    arguments: argparse.Namespace, settings: Settings, task: Task, judge: Judge, ui: Ui
) -> tuple[Robustness, Usage, Path]:
    """Grade answers made from the references of question files; returns the result, its cost and its page."""
    sources = _sources(arguments, settings, task, ui)
    number = arguments.n or (_QUESTIONS_ONLINE if reads_prose(judge) else None)
    mapping_file = arguments.mapping or settings.data.mapping
    mapping = ColumnMapping.load(mapping_file) if mapping_file and arguments.questions else None
    questions = [(question, path) for file, path in sources for question in load_questions(file, mapping)]
    chosen = questions if number is None else sample_evenly(questions, number)
    examples = _read_all(chosen, settings, task, ui, extractive=judge.name == "facts")
    answers = generate(examples, refusals(question for question, _ in questions))
    folder = new_folder(arguments.out, settings.runs_dir, judge.name)
    with ui.progress(f"Grading with {escape(judge.name)}", len(answers)) as on_done:
        graded = asyncio.run(grade_generated(judge, answers, on_done))
    robustness = measure_robustness(
        graded,
        judge=judge.name,
        files=[f"{path.absolute().parent.name}/{path.name}" for path, _ in sources],
        max_failed_share=settings.judge.max_failed_share,
    )
    write_robustness(folder, robustness, graded)
    page = write_robustness_page(folder, robustness, graded, task.disclaimer)
    if save_robustness(judge, robustness, settings.judge.evaluations_dir) is None:
        ui.say(f"Under {ENOUGH_QUESTIONS} questions: training goes by an earlier evaluation, if there is one.")
    show_robustness(robustness, graded, ui.console)
    return robustness, robustness.usage, page


def _on_labels(
    arguments: argparse.Namespace, settings: Settings, task: Task, judge: Judge, ui: Ui
) -> tuple[JudgeEvaluation, Usage, Path]:
    """Grade answers that people labelled; returns the result, its cost and its page."""
    names = arguments.labels or "labels", arguments.attacks or "attacks"
    labels, attacks = map(_cases, names)
    folder = new_folder(arguments.out, settings.runs_dir, judge.name)
    with ui.progress(f"Grading with {escape(judge.name)}", len(labels) + len(attacks)) as on_done:
        gradings = asyncio.run(grade_all(judge, labels, attacks, on_done))
    evaluation = measure(
        gradings,
        judge=judge.name,
        labels_file=Path(names[0]).name,
        attacks_file=Path(names[1]).name,
        max_failed_share=settings.judge.max_failed_share,
    )
    write_numbers(folder, evaluation, gradings)
    page = write_page(folder, evaluation, gradings, task.disclaimer)
    if save_evaluation(judge, evaluation, settings.judge.evaluations_dir) is None:
        ui.say(f"Under {ENOUGH} answers, or all alike: training goes by an earlier evaluation, if there is one.")
    show_agreement(evaluation, gradings, ui.console)
    return evaluation, sum((g.usage for g in gradings), start=Usage()), page


def _sources(arguments: argparse.Namespace, settings: Settings, task: Task, ui: Ui) -> list[tuple[Path, Source]]:
    """Return the question files, each with its database: those of the command line, else the task's test questions."""
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
    """Query the databases for all `questions`: for each the one that it names, else the file in its pair.

    `extractive` replaces references of prose by their evidence.
    """
    examples: list[Example] = []
    with ui.progress("Running the gold SQL", len(questions)) as on_done:
        for path in dict.fromkeys(path for _, path in questions):
            with task.databases(settings, path) as databases:
                of_file = [question for question, of in questions if of == path]
                for question in with_extractive_answers(of_file, databases) if extractive else of_file:
                    with databases.of(question.database) as database:
                        examples.append(read_example(question, database))
                    on_done(len(examples))
    return examples


def _say_cost(usage: Usage, ui: Ui) -> None:
    if usage.requests or usage.cache_hits:
        ui.say(f"Cost: {usage.described}; {usage.cache_hits} verdicts were in the cache")


def _cases(name: str) -> list[LabelledCase]:
    return shipped(name) if name in _SHIPPED else load_labelled(Path(name))
