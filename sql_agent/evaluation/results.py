"""Write or print the figures of evaluations and their comparisons, and write the answers to a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import Field
from rich.console import Console

from sql_agent.config.settings import load_settings
from sql_agent.database.sqlite.dialect import SQLITE
from sql_agent.errors import ConfigError
from sql_agent.evaluation.folder import About, EvaluationFolder, Key
from sql_agent.evaluation.measures import Price, SetResult, measure_set, without_samples
from sql_agent.evaluation.statistics import Comparison, compare
from sql_agent.evaluation.tables import comparison_table, figure_tables, markdown, print_flips
from sql_agent.evaluation.voting import Doubts, Vote, best_threshold, decide, vote
from sql_agent.reward.execution_match import statement_in
from sql_agent.runs.console import TextTable, print_table
from sql_agent.runs.pages import RolloutPack, render_report
from sql_agent.schemas import Question, Record, RolloutRecord
from sql_agent.system.files import write_text
from sql_agent.tasks.task import load_task

_NO_STATEMENT = "NONE"  # written for a missing statement, because an empty line in the file would end a conversation
_PARTS = re.compile(rf"{SQLITE.parts.pattern}|(?P<blanks>\s+)", re.DOTALL)  # the public evaluators run SQLite


class Evaluation(Record):
    """The evaluation of one model. By question set, `sets` has the figures and `asked` the number of questions.

    If each question was asked several times, `sets` also has the figures of the votes. `refuse_below` has, by question
    set, the agreement (0–1) below which a vote becomes a refusal.
    """

    about: About
    asked: dict[str, int]
    sets: dict[str, SetResult]
    refuse_below: dict[str, float] = Field(default_factory=dict)


class Report(Record):
    """The evaluations of one or more models, and comparisons of each further model with the first model."""

    evaluations: tuple[Evaluation, ...]
    comparisons: tuple[Comparison, ...] = ()
    seed: int


Rollouts = Mapping[Key, RolloutRecord]
Votes = Mapping[str, Sequence[Vote]]  # by question set


def measure(folder: EvaluationFolder, votes: Votes, *, price: Price | None, seed: int) -> Evaluation:
    about = folder.about()
    task = load_task(about.settings["task"])
    results: dict[str, SetResult] = {}
    below: dict[str, float] = {}

    def add(name: str, of: Sequence[RolloutRecord], samples: int = 1) -> None:
        results[name] = measure_set(
            of, task.words, price=price, seed=seed, samples=samples, reliability=task.answer_is_sql
        )

    for name, of in _by_set(folder).items():
        if of:
            add(name, of, about.samples)
        if cast := votes.get(name):
            add(f"{name}, vote", decide(cast, task.words))
            if any(task.abstains(record.question.answer, record.question.lang) for record, _ in cast):
                given = about.refuse_below
                below[name] = best_threshold(cast, task.words) if given is None else given
                add(f"{name}, vote of {below[name]:.0%} or null", decide(cast, task.words, below[name]))
    counts = {name: len(questions) for name, questions in folder.sets().items()}
    return Evaluation(about=about, asked=counts, sets=results, refuse_below=below)


def final_answers(folder: EvaluationFolder, evaluation: Evaluation, votes: Votes) -> list[tuple[Question, str]]:
    """Return each question in the order of its file, with the answer of the rollout or of the vote; "" if missing."""
    records, samples = _by_set(folder), evaluation.about.samples
    words = load_task(evaluation.about.settings["task"]).words
    answers = []
    for name, questions in folder.sets().items():
        below = evaluation.refuse_below.get(name, 0.0)
        of = decide(votes[name], words, below) if samples > 1 else records[name]
        found = {record.question.id: record.answer for record in of}
        answers += [(question, found.get(question.id, "")) for question in without_samples(questions, samples)]
    return answers


def votes_of(folder: EvaluationFolder) -> Votes:
    """Return the votes by question set; in a SQL task with refusals, statements in doubt (`Doubts`) do not vote."""
    about = folder.about()
    if about.samples == 1:
        return {}
    task, records = load_task(about.settings["task"]), _by_set(folder)
    if not (task.answer_is_sql and any(words.refusals for words in task.words.values())):
        return {name: vote(of, task.words, about.samples) for name, of in records.items()}
    settings = load_settings(flags=about.settings)
    with task.databases(settings) as databases:
        doubts = Doubts(databases, task.questions(settings, "train") if about.run else None)
        return {name: vote(of, task.words, about.samples, doubts) for name, of in records.items()}


def _by_set(folder: EvaluationFolder) -> dict[str, list[RolloutRecord]]:
    records = folder.records().items()
    return {name: [record for (each, _), record in records if each == name] for name in folder.sets()}


def report_on(
    evaluations: Sequence[Evaluation], rollouts: Sequence[Rollouts], *, compared: bool, seed: int = 0
) -> Report:
    """Return the report of `evaluations`. If `compared`, each further model is tested against the first."""
    comparisons = []
    if compared:
        labels = _labels(evaluations)
        comparisons = [
            compare(labels[0], rollouts[0], label, others, seed=seed)
            for label, others in zip(labels[1:], rollouts[1:], strict=True)
        ]
    return Report(evaluations=tuple(evaluations), comparisons=tuple(comparisons), seed=seed)


def write_results(folder: Path, report: Report, rollouts: Sequence[Rollouts]) -> dict[str, Path]:
    """Write `report` into `folder` as JSON, Markdown and HTML; return the paths, keyed by suffix such as "md"."""
    name = "comparison" if report.comparisons else "evaluation"
    tables = [*map(comparison_table, report.comparisons), *_figure_tables(report)]
    judges = [evaluation.about.judge for evaluation in report.evaluations]
    texts = {
        "json": report.model_dump_json(indent=2),
        "md": markdown(tables, report.comparisons, judges),
        "html": _page(tables, report, rollouts),
    }
    paths = {}
    for suffix, text in texts.items():
        paths[suffix] = folder / f"{name}.{suffix}"
        write_text(paths[suffix], text)
    return paths


def print_report(report: Report, console: Console) -> None:
    for table in _figure_tables(report):
        print_table(table, console)
    for comparison in report.comparisons:
        print_table(comparison_table(comparison), console)
        print_flips(comparison, console)


def _labels(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return the names of the models; a repeated name gets a number."""
    names = [evaluation.about.model for evaluation in evaluations]
    earlier = [names[:position].count(name) for position, name in enumerate(names)]
    return [f"{name} ({count + 1})" if count else name for name, count in zip(names, earlier, strict=True)]


def _figure_tables(report: Report) -> list[TextTable]:
    sets = [evaluation.sets for evaluation in report.evaluations]
    return figure_tables(dict(zip(_labels(report.evaluations), sets, strict=True)), report.seed)


def _page(tables: Sequence[TextTable], report: Report, rollouts: Sequence[Rollouts]) -> str:
    """Return an offline HTML page with the tables and every rollout."""
    labels = _labels(report.evaluations)
    packs = list(map(_pack, rollouts))
    page = {
        "title": "Evaluation " + " · ".join(labels),
        "disclaimer": load_task(report.evaluations[0].about.settings["task"]).disclaimer,
        "tables": list(map(asdict, tables)),
        "runs": [
            {"name": label, "facts": _facts(evaluation), "charts": [], "config": evaluation.about.settings}
            | pack.index()
            for label, evaluation, pack in zip(labels, report.evaluations, packs, strict=True)
        ],
    }
    return render_report(page, [pack.blocks() for pack in packs])


def _pack(records: Rollouts) -> RolloutPack:
    pack = RolloutPack()
    for (name, number), record in records.items():
        dumped = record.model_dump(mode="json")
        where = {"step": 0, "mode": "eval", "val_set": name, "group": number, "rollout_id": None}
        pack.add({**where, "dropped": dumped["dropped"], "record": dumped})
    return pack


def _facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    about = evaluation.about
    known = {
        "Model": about.model,
        "Address": about.base_url,
        "Trained in": about.run,
        "Questions": ", ".join(f"{count} {name}" for name, count in evaluation.asked.items()),
        "Judge": about.judge,
        "Started": about.started,
        "Version": about.version,
    }
    return [(name, text) for name, text in known.items() if text]


def check_predictions(path: Path, task_name: str) -> None:
    """Raise ConfigError unless the answers of the task are SQL statements and `path` can be a file."""
    task = load_task(task_name)
    if not task.answer_is_sql:
        raise ConfigError(f"the answers of the task {task.name} are not SQL statements", hint="leave out --predictions")
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a folder" if path.is_dir() else "lies in a folder that does not exist"
        raise ConfigError(f"--predictions {path} {problem}", hint="name a file in a folder that exists")


def write_predictions(path: Path, answers: Iterable[tuple[Question, str]]) -> None:
    """Write the statement of each answer, or NONE if the answer has no statement, to the file `path`.

    A file NAME.json is the input of EHRSQL's scorer: an object with the statements by question id. Any other file is
    the input of Spider's evaluators: a line for each question with the statement, a tab and the name of the database.
    """
    if path.suffix == ".json":
        found = {question.id: statement_in(answer) or _NO_STATEMENT for question, answer in answers}
        text = json.dumps(found, ensure_ascii=False, indent=1)
    else:
        lines = ((_on_one_line(statement_in(answer)), question.database or "") for question, answer in answers)
        text = "".join(f"{sql or _NO_STATEMENT}\t{database}\n" for sql, database in lines)
    write_text(path, text)


def _on_one_line(sql: str) -> str:
    """Return `sql` without comments, with white space outside quotes reduced to single spaces.

    Line breaks and tabs inside quotes become spaces, because the file format cannot escape them.
    """

    def on_line(part: re.Match[str]) -> str:
        return re.sub(r"[\t\r\n]", " ", part["quoted"]) if part["quoted"] else part["open"] or " "

    return _PARTS.sub(on_line, sql).strip()
