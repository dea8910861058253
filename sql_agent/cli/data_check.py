"""Report on question files: the forms of references, evidence, gold SQL that runs
on the database, duplicates, entities that files share, what the references
earn from the judge `facts`, and cells of the database that look damaged. The
exit code is 2 where a run would refuse the questions."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import get_args

from sql_agent.cli.command import DATABASE, Commands, add_command, database, print_error
from sql_agent.cli.data_teacher import add_question_arguments, mapping_of
from sql_agent.cli.question_sets import folded_text, set_name
from sql_agent.config.settings import Settings, load_settings
from sql_agent.database import DatabasePool, Source
from sql_agent.errors import ConfigError
from sql_agent.questions.question_check import CheckedQuestion, Form, check_questions, count_quotes, problem_of
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.runs.console import TextTable, Ui, print_table
from sql_agent.schemas import Lang, Question
from sql_agent.system.messages import first_of
from sql_agent.tasks.cells import suspicious_cells
from sql_agent.tasks.described.table_rows import read_database
from sql_agent.tasks.task import DESCRIBED, Task, load_task

_EXAMPLES = """\
  sql-agent data check my.jsonl --db my.db
  sql-agent data check train.parquet val.parquet --db my.db --mapping my.toml
"""

_SHOWN = 3  # maximum number of examples of each problem
_CELL_CHARS = 120  # maximum number of printed characters of a suspicious cell
# The kinds of failure that are not refusals by the SQL guard.
_FAULTS = {"timeout", "failed", "syntax", "unknown_table", "unknown_column", "empty"}
Checked = Mapping[str, Sequence[CheckedQuestion]]  # the checked questions of each file, keyed by its name


def add_check(commands: Commands) -> None:
    summary = "check question files against a database"
    parser = add_command(commands, "check", _run, summary, __doc__ or "", _EXAMPLES)
    add = parser.add_argument
    add("files", type=Path, nargs="+", metavar="FILE", help="questions, parquet or JSONL: one file for each split")
    add("--db", type=database, metavar="DB", help=f"database of the questions: {DATABASE} (default: that of --task "
        "NAME.toml)")  # fmt: skip
    add_question_arguments(parser)


def _run(arguments: argparse.Namespace) -> int:
    ui = Ui(wraps=True)
    settings = load_settings(flags=arguments.flags)
    task = load_task(settings.task)
    if arguments.db is None and not settings.task.endswith(DESCRIBED):
        raise ConfigError("--db is missing", hint="give the database of the questions, or --task NAME.toml")
    mapping = mapping_of(arguments)
    files = {set_name(path, arguments.files): task.read_questions(path, mapping) for path in arguments.files}
    judge = FactsJudge(task.words)
    checked: dict[str, list[CheckedQuestion]] = {}
    with task.databases(settings, arguments.db) as databases:
        for name, questions in files.items():
            with ui.progress(f"Checking {name}", len(questions)) as on_done:
                checked[name] = check_questions(questions, databases, task.words, judge, on_done=on_done)
        columns = [_figures(files[name], checked[name], databases) for name in checked]
    sections = [
        [(label, [figures.get(label, "0") for figures in section]) for label in dict.fromkeys(chain(*section))]
        for section in zip(*columns, strict=True)
    ]
    print_table(TextTable("", list(checked), sections), ui.console)
    for line in (*_remarks(files, checked), *_suspicious(task, settings, arguments.db, files)):
        ui.say(line)
    found = [problem_of(each, judge.name) for each in checked.values()]
    problems = [problem for problem in (*found, _shared_texts(files)) if problem is not None]
    for problem in problems:
        print_error(problem)
    ui.say(task.disclaimer)
    return 2 if problems else 0


def _figures(
    questions: Sequence[Question], checked: Sequence[CheckedQuestion], databases: DatabasePool
) -> tuple[dict[str, str], ...]:
    """Return the column of one file: the figures of each section of the table, keyed by label."""
    forms, langs = Counter(c.form for c in checked), Counter(q.lang for q in questions)
    types = Counter(q.task_type or "(none)" for q in questions)
    quotes = sum(len(q.evidence) for q in questions)
    with_sql = [c for c in checked if c.question.statements]
    earned = [c.earned for c in checked if c.earned is not None]
    derived = sum(not q.evidence and bool(c.question.evidence) for q, c in zip(questions, checked, strict=True))
    found = count_quotes(questions, databases)
    return (
        {"questions": str(len(questions)), **{f"  language {lang}": str(langs[lang]) for lang in get_args(Lang)}},
        {f"task type {name}": str(count) for name, count in sorted(types.items())},
        {f"reference of {form}": str(forms[form]) for form in get_args(Form)},
        {
            "with evidence": str(sum(bool(q.evidence) for q in questions)),
            "  derived from the database": str(derived),
            "evidence quotes found in their cell": f"{found.found} of {quotes}"
            + (f", {found.unchecked} not checked" if found.unchecked else ""),
        },
        {
            "with gold SQL": str(len(with_sql)),
            "  returns rows": str(sum(c.returns_rows for c in with_sql)),
            "  returns no row": str(sum(c.failure is None and not c.returns_rows for c in with_sql)),
            "  fails": str(sum(c.failure_kind in _FAULTS for c in with_sql)),
            "  refused by the guard": str(sum(bool(c.failure) and c.failure_kind not in _FAULTS for c in with_sql)),
        },
        {
            "reference earns, mean of 0–1": f"{fmean(earned):.2f}" if earned else "–",
            "  full marks": f"{sum(score > 0.999 for score in earned)} of {len(earned)}",
        },
    )


def _remarks(files: Mapping[str, Sequence[Question]], checked: Checked) -> list[str]:
    everything = [c for each in checked.values() for c in each]
    facts = (c.question for c in everything if c.question.statements and c.form != "refusal")
    unread = Counter(question.task_type or "(none)" for question in facts if not question.evidence)
    remarks: dict[str, Iterable[str]] = {
        "Gold SQL that fails": (f"{c.question.id}: {c.failure}" for c in everything if c.failure),
        "Gold SQL without a row": (
            c.question.id for c in everything if c.needs_rows and not c.failure and not c.returns_rows
        ),
        "References that earn less than 1": (
            f"{c.question.id}: {c.earned:.2f}, {c.reason}" for c in everything if (c.earned or 0.0) <= 0.999
        ),
        "Neither gold SQL nor evidence, so the reference was compared with nothing in the database": (
            c.question.id for c in everything if not c.question.statements and not c.question.evidence
        ),
        "Without evidence, so the reference was looked for in all rows of the gold SQL's result": (
            f"{count} of type {name}" for name, count in unread.items()
        ),
        "Questions asked twice in a file": (
            text for each in files.values() for text in _repeated(map(folded_text, each))
        ),
        "Ids in more than one file": _in_several({q.id for q in each} for each in files.values()),
        "Entities in more than one file (a model may remember them)": _in_several(
            {f"{e.table} {e.row_id}" for c in each for e in c.question.evidence} for each in checked.values()
        ),
    }
    found = {title: list(items) for title, items in remarks.items()}
    return ["\n  ".join([f"{title}: {len(of)}", *first_of(of, _SHOWN)]) for title, of in found.items() if of]


def _suspicious(
    task: Task, settings: Settings, own: Source | None, files: Mapping[str, Sequence[Question]]
) -> list[str]:
    """Return a text on each kind of damaged cells; [] if the questions are about several databases."""
    names = {question.database for each in files.values() for question in each}
    if len(names) != 1 or (own is None and settings.agent.tool == "mcp"):
        return []
    name = names.pop()
    tables = read_database(own if own and name is None else task.source_of(settings, name), task.schema).tables
    columns = {f"{table}.{column}": rows.cells(column) for table, rows in tables.items() for column in rows.columns}
    found = suspicious_cells(columns)
    counted = (f"{what}: {len(cells)}, such as {min(cells, key=len)[:_CELL_CHARS]}" for what, cells in found.items())
    return ["\n  ".join(["Suspicious cells of the database", *counted])] if found else []


def _repeated(texts: Iterable[str]) -> list[str]:
    return [text for text, count in Counter(texts).items() if count > 1]


def _in_several(sets: Iterable[set[str]]) -> list[str]:
    return sorted(_repeated(item for items in sets for item in items))


def _shared_texts(files: Mapping[str, Sequence[Question]]) -> ConfigError | None:
    shared = _in_several({question.question for question in each} for each in files.values())
    if not shared:
        return None
    return ConfigError(
        f"{len(shared)} questions are in more than one file, such as {shared[0]!r}",
        hint="keep each question in one file only: validation and test need questions that training never sees",
    )
