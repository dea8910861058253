"""Compare results by the rules of the EHRSQL-2024 shared task (Lee et al., NAACL Clinical NLP Workshop 2024)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sql_agent.reward.execution_match import ResultRow

_DAY, _TIME = "2100-12-31", "23:59:00"
_NOW = f"'{_DAY} {_TIME}'"
_COMPARED_ROWS = 100
_SPLIT = re.compile(r"([<>!]) =")
_MYSQL_DATE = re.compile(
    r"DATE_(ADD|SUB)\((\w+\(\)|'[^']+')[ ,]+ INTERVAL (\d+) (DAY|MONTH|YEAR)\)"  # as the published scorer finds it
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


def as_run(sql: str) -> str:
    """Return the statement that the shared task runs in place of `sql`: on one line, with a fixed clock and ranges."""
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
    """Return whether two results have the same rows, in any order, each as often.

    The columns must be in the same order. Numbers are rounded to three places, text that is a number too; only the
    first 100 rows of the sorted results count.
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
