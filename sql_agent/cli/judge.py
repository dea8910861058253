"""Measure how far a judge, which scores an answer from 0.0 to 1.0, can be trusted:
turn the reference answers of a question file into right answers in another
form, false answers, and answers of degenerate policies, and measure the judge's
scores of each. With --labels or --attacks, measure on answers that people
labelled instead, for judges that read prose. Writes evaluation.json and
gradings.jsonl. A training run prints at its start what the last evaluation of
its judge found."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from sql_agent.cli.command import (
    DATABASE,
    add_setting_flags,
    add_words,
    database,
    new_parser,
    parse_words,
    positive,
    print_error,
)
from sql_agent.cli.data_teacher import say_some
from sql_agent.config.settings import Settings, load_settings
from sql_agent.database import Source
from sql_agent.errors import ConfigError, JudgeError
from sql_agent.judge_eval.answers import Answer, Example, generate, load_labelled, refusals, sample_evenly
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
from sql_agent.questions.derived_evidence import with_extractive_answers
from sql_agent.questions.question_check import read_example
from sql_agent.questions.question_columns import ColumnMapping
from sql_agent.questions.question_files import load_questions
from sql_agent.reward import Judge
from sql_agent.reward.judges.items import Reader
from sql_agent.runs.console import TableRow, TextTable, Ui, print_table
from sql_agent.schemas import Question
from sql_agent.tasks.task import Task, load_task

_QUESTIONS_ONLINE = 40  # default for a judge on a network; about 35 answers are graded for each question
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

_EXAMPLES = """
  sql-agent judge evaluate                  the test questions of the sample
  sql-agent judge evaluate -n 40 judge.name=llm        needs TEACHER_MODEL
  sql-agent judge evaluate --questions my.parquet --db my.db
  sql-agent judge evaluate --labels heldout judge.name=llm
"""


def main(argv: Sequence[str] | None = None) -> int:
    usage = "sql-agent judge evaluate [FLAGS] [section.key=value ...]"
    parser = new_parser("judge", __doc__, _EXAMPLES, usage=usage)
    add = parser.add_argument
    add("command", choices=("evaluate",), metavar="evaluate", help="the command")
    add("--questions", type=Path, action="append", metavar="FILE", help="questions with gold SQL, parquet or JSONL; "
        "may be repeated (default: the sample's test questions)")  # fmt: skip
    add("--db", type=database, action="append", metavar="DB", help="database of the questions, one for each "
        f"--questions: {DATABASE}")  # fmt: skip
    add("--mapping", type=Path, metavar="FILE", help="TOML file that names the columns of --questions")
    add("-n", type=positive, metavar="N", help="number of questions, spread over the task types (default: all; "
        f"{_QUESTIONS_ONLINE} for a judge on a network)")  # fmt: skip
    add("--labels", metavar="FILE", help="labelled answers: a JSONL file, or a shipped file: labels or heldout")
    add("--attacks", metavar="FILE", help="attacks on the judge, JSONL (default: the shipped attacks)")
    add("--out", type=Path, metavar="FOLDER", help="folder to write (default: runs/judge-NAME-DATE-TIME)")
    add_setting_flags(parser, {"--task": "task"})
    add_words(parser, meaning="any setting; `sql-agent settings judge` lists the judge's settings")
    return _evaluate(parse_words(parser, argv))


def _evaluate(arguments: argparse.Namespace) -> int:
    """Measure a judge, print tables and write a folder of results.

    Return 0, or 1 if the share of failed gradings is above `judge.max_failed_share`.
    """
    settings = load_settings(arguments.overrides, flags=arguments.flags)
    task = load_task(settings.task)
    judge = task.judge(settings, alone=True)
    ui = Ui()
    labelled = arguments.labels is not None or arguments.attacks is not None
    if labelled and (arguments.questions or arguments.db or arguments.mapping or arguments.n):
        raise ConfigError(
            "--labels and --attacks contain their questions, so other questions cannot be given",
            hint="leave out --questions, --db, --mapping and -n",
        )
    if labelled:
        files, answers = _labelled_answers(arguments)
    else:
        files, answers = _generated_answers(arguments, settings, task, judge, ui)
    folder = new_folder(arguments.out, settings.runs_dir, judge.name)
    with ui.progress(f"Grading with {judge.name}", len(answers)) as on_done:
        gradings = asyncio.run(grade(judge, answers, on_done))
    found = measure(judge, gradings, files=files, max_failed_share=settings.judge.max_failed_share)
    write(folder, found, gradings)
    _show(found, gradings, ui)
    if found.usage.requests or found.usage.cache_hits:
        ui.say(f"Cost: {found.usage.described}; {found.usage.cache_hits} verdicts were in the cache")
    ui.say(f"Numbers and gradings: {folder}")
    ui.say(task.disclaimer)
    if found.failed_share <= found.max_failed_share:
        return 0
    print_error(
        JudgeError(
            f"{found.failed} of {found.answers} gradings failed ({found.failed_share:.1%}), more than "
            f"judge.max_failed_share={found.max_failed_share:g}; the tables leave them out",
            hint="correct the causes listed above and evaluate again before you trust this judge",
        )
    )
    return 1


def _generated_answers(
    arguments: argparse.Namespace, settings: Settings, task: Task, judge: Judge, ui: Ui
) -> tuple[list[str], list[Answer]]:
    for flag, given in (("--db", arguments.db), ("--mapping", arguments.mapping)):
        if given and not arguments.questions:
            raise ConfigError(f"{flag} without --questions", hint="give the file of questions with --questions")
    if not arguments.questions:
        task.prepare(settings, ui.say)
    databases = arguments.db or [task.database_source(settings)]
    files = arguments.questions or [task.question_file(settings, "test")]
    if len(files) != len(databases):
        raise ConfigError(
            f"{len(files)} question files and {len(databases)} databases are given",
            hint="give one --db for each --questions",
        )
    number = arguments.n or (None if judge.name == "facts" else _QUESTIONS_ONLINE)
    mapping_file = arguments.mapping or settings.data.mapping
    mapping = ColumnMapping.load(mapping_file) if mapping_file and arguments.questions else None
    sources = zip(files, databases, strict=True)
    questions = [(question, path) for file, path in sources for question in load_questions(file, mapping)]
    chosen = questions if number is None else sample_evenly(questions, number)
    examples = _read_all(chosen, settings, task, ui, extractive=judge.name == "facts")
    names = [f"{path.absolute().parent.name}/{path.name}" for path in files]
    return names, generate(examples, refusals(question for question, _ in questions))


def _labelled_answers(arguments: argparse.Namespace) -> tuple[list[str], list[Answer]]:
    labels, attacks = arguments.labels or "labels", arguments.attacks or "attacks"
    answers = [case.of_set("labels") for case in load_labelled(labels)]
    answers += [case.of_set("attacks") for case in load_labelled(attacks)]
    return [Path(labels).name, Path(attacks).name], answers


def _read_all(
    questions: Sequence[tuple[Question, Source]], settings: Settings, task: Task, ui: Ui, *, extractive: bool
) -> list[Example]:
    """Return an Example of each question, whose gold SQL runs on the paired database if the question names none.

    With `extractive`, the evidence of a prose reference replaces the reference.
    """
    examples: list[Example] = []
    with ui.progress("Running the gold SQL", len(questions)) as on_done:
        for path in dict.fromkeys(path for _, path in questions):
            with task.databases(settings, path) as databases:
                of_file = [question for question, of in questions if of == path]
                for question in with_extractive_answers(of_file, databases, task.words) if extractive else of_file:
                    with databases.of(question.database) as database:
                        reader = Reader(task.words[question.lang])
                        examples.append(read_example(question, database, reader, task.schema.names))
                    on_done(len(examples))
    return examples


def _show(found: Evaluation, gradings: Sequence[Grading], ui: Ui) -> None:
    if found.of("labels"):
        print_table(_agreement_table(found), ui.console)
        measures = [(group.kind, measure) for group in found.of("labels") for measure in group.measures.values()]
        lines = [f"– in {kind}: {measure.undefined}" for kind, measure in measures if measure.undefined]
        for line in dict.fromkeys(lines):
            ui.say(line)
    if found.of("attacks", "harmless", "false", "policy"):
        print_table(_score_table(found), ui.console)
    wrong = wrong_gradings(gradings)
    lines = [f"{g.score:.2f}  {g.kind.replace('_', ' ')}: {g.answer[:100]!r}" for g in wrong if g.score is not None]
    say_some(lines, ui, "more answers graded wrong: see gradings.jsonl")
    if found.failed:
        ui.say(f"{found.failed} of {found.answers} gradings failed and are in no table:")
        causes = (f"{count} × {cause}" for cause, count in causes_of_failure(gradings))
        say_some(causes, ui, "more causes: see gradings.jsonl")


def _agreement_table(found: Evaluation) -> TextTable:
    """Return a table of the agreement with people, by task type, then by language."""
    kinds, langs = list[TableRow](), list[TableRow]()
    for group in found.of("labels"):
        measures = [group.measures[name] for name in _MEASURES]
        rows = langs if group.kind in {"en", "zh"} else kinds
        rows.append((group.kind, [str(group.graded), str(group.failed), *(_number(m.value) for m in measures)]))
        if group.kind == "all":
            rows.append(("95 % from", ["", "", *(_number(m.low) for m in measures)]))
            rows.append(("95 % to", ["", "", *(_number(m.high) for m in measures)]))
    title = f"Judge {found.judge} against labelled answers ({found.files[0]})"
    return TextTable(title, ["graded", "failed", *_MEASURES.values()], [kinds, langs])


def _score_table(found: Evaluation) -> TextTable:
    """Return a table of the scores of each kind of answer, with a section for each set of answers."""
    attacks = bool(found.of("attacks"))
    sections: list[list[TableRow]] = []
    for name, heading in _SETS.items():
        rows: list[TableRow] = [(heading, [])]
        for group in (group for group in found.groups if group.set == name):
            scores = (group.mean, group.lowest, group.highest)
            counts = (group.above_limit if attacks else group.half_or_more, group.graded, group.failed)
            texts = [f"{group.due:.2f}", *map(_number, scores), *map(str, counts)]
            rows.append((f"  {group.kind.replace('_', ' ')}", texts))
        if len(rows) > 1:
            sections.append(rows)
    columns = ["due", "mean", "min", "max", f"> {ATTACK_LIMIT}" if attacks else f"≥ {HALF}", "n", "failed"]
    return TextTable(f"What answers earn from the judge {found.judge} ({', '.join(found.files)})", columns, sections)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
