"""The task ehrsql: answer a question about hospital records with a SQL statement, or abstain.

Results are compared by the rules of the EHRSQL-2024 shared task (Lee et al., NAACL Clinical NLP Workshop 2024).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.reward.execution_match import ResultRow
from sql_agent.reward.judges.items import Words
from sql_agent.schemas import Lang, Question
from sql_agent.system.files import prompt_file
from sql_agent.tasks.ehrsql.find_values import find_values
from sql_agent.tasks.ehrsql.questions import REFUSAL, of_split, read_questions
from sql_agent.tasks.spider.folder import data_dir, default_questions
from sql_agent.tasks.spider.judge import Comparison, ExecutionJudge
from sql_agent.tasks.spider.spider_task import TASK as SPIDER
from sql_agent.tasks.spider.spider_task import sqlite_file, with_tables

_LAYOUT = "a folder with database/mimic_iv/mimic_iv.sqlite, train.json and valid.json (docs/ehrsql.md)"
_DAY, _TIME = "2100-12-31", "23:59:00"
_NOW = f"'{_DAY} {_TIME}'"
_COMPARED_ROWS = 100
_SPLIT = re.compile(r"([<>!]) =")
_MYSQL_DATE = re.compile(
    r"DATE_(ADD|SUB)\((\w+\(\)|'[^']+')[ ,]+ INTERVAL (\d+) (DAY|MONTH|YEAR)\)"  # found as the published scorer does
)
# Replaced in this order wherever they occur, also inside strings.
_CLOCK = {
    "current_time": _NOW,
    "current_date": f"'{_DAY}'",
    "'now'": _NOW,
    "NOW()": _NOW,
    "CURDATE()": f"'{_DAY}'",
    "CURTIME()": f"'{_TIME}'",
}
_BOUND = re.compile(r" (\w+)_(lower|upper)")
_NORMAL_RANGES = {
    "temperature": (35.5, 38.1),
    "sao2": (95.0, 100.0),
    "heart_rate": (60.0, 100.0),
    "respiration": (12.0, 18.0),
    "systolic_bp": (90.0, 120.0),
    "diastolic_bp": (60.0, 90.0),
    "mean_bp": (60.0, 110.0),
}


def describe(_lang: Lang, database: Database, settings: Settings) -> str:
    return with_tables(prompt_file(__file__, "conventions.txt"), database, settings)


def instructions(_lang: Lang, database: Database, settings: Settings) -> str:
    return with_tables(
        prompt_file(__file__, "conventions.txt") + prompt_file(__file__, "system.txt"), database, settings
    )


def question_text(question: Question, database: Database) -> str:
    found = ", ".join(map(str, find_values(sqlite_file(database), question.question)))
    return f"{question.question}\nValues: {found or 'none'}"


def make_judge(settings: Settings, words: Mapping[Lang, Words], *, alone: bool = False) -> ExecutionJudge:
    return ExecutionJudge(settings, words, Comparison("ehrsql/1", as_run, same_result))


def prepare(settings: Settings, say: Callable[[str], None]) -> None:
    """Print the names of the run's question files. Raises ConfigError when there is no data."""
    folder = data_dir(settings)
    files_of = [default_questions(settings, split).name for split in ("train", "val")]
    say(f"Questions of {folder}: training {files_of[0]}, validation {files_of[1]}")


def as_run(sql: str) -> str:
    """Return `sql` as the shared task runs it: on one line, with a fixed clock and the normal ranges as numbers."""
    sql = re.sub(" +", " ", sql.replace("\n", " ")).strip()
    sql = _MYSQL_DATE.sub(_sqlite_date, _SPLIT.sub(r"\1=", sql))
    for name, literal in _CLOCK.items():
        sql = sql.replace(name, literal)
    bounds: dict[str, str] = {}
    for name, end in _BOUND.findall(sql):
        bounds.setdefault(end, name)
    name = bounds.get("lower", "")
    if name == bounds.get("upper") and name in _NORMAL_RANGES:
        low, high = _NORMAL_RANGES[name]
        sql = sql.replace(f"{name}_lower", str(low)).replace(f"{name}_upper", str(high))
    return sql.replace("%y", "%Y").replace("%j", "%J")


def same_result(gold: Sequence[ResultRow], found: Sequence[ResultRow], _gold_sql: str = "") -> bool:
    """Return whether two results have the same rows, each as often, in any order.

    The columns must be in the same order. Numbers, also in texts, are rounded to three places. Only the first 100 rows
    of the sorted results are compared.
    """
    return _table(gold) == _table(found)


def _table(rows: Sequence[ResultRow]) -> list[list[str]]:
    return sorted([_cell(cell) for cell in row] for row in rows)[:_COMPARED_ROWS]


def _cell(value: object) -> str:
    try:
        return str(round(float(str(value)), 3))
    except ValueError:
        return str(value)


def _sqlite_date(match: re.Match[str]) -> str:
    operation, date, count, unit = match.groups()
    plural = "" if count == "1" else "s"
    return f"datetime({date}, '{'-' if operation == 'SUB' else '+'}{count} {unit.lower()}{plural}')"


TASK = replace(
    SPIDER,
    name="ehrsql",
    tool_description="Run one read-only SQLite SELECT on the hospital's tables and get the rows as JSON.",
    disclaimer="For research on questions to databases, not medical advice.",
    describe=describe,
    instructions=instructions,
    question_text=question_text,
    checks_results=False,
    questions_hint=f"give --data-dir DIR: {_LAYOUT}",
    prepare=prepare,
    read_questions=read_questions,
    of_split=of_split,
    words={lang: Words(refusals=(REFUSAL,)) for lang in ("en", "zh")},
    make_judge=make_judge,
)
