"""Write the answers of an evaluation as the public evaluators of text-to-SQL read predictions."""

from __future__ import annotations

import re
from pathlib import Path

from sql_agent.database.sqlite.dialect import SQLITE
from sql_agent.errors import ConfigError
from sql_agent.evaluation.folder import EvaluationFolder
from sql_agent.reward.execution_match import statement_in
from sql_agent.system.files import atomic_write
from sql_agent.tasks.task import load_task

NOTHING = "NONE"  # an empty line would part two conversations, and each question needs its line
_PARTS = re.compile(rf"{SQLITE.parts.pattern}|(?P<blanks>\s+)", re.DOTALL)  # the public evaluators run SQLite
_LINE_MARKS = re.compile(r"[\t\r\n]")


def check_predictions(path: Path, task_name: str) -> None:
    """Raise ConfigError when no predictions of the task can be written to `path`."""
    task = load_task(task_name)
    if not task.answer_is_sql:
        raise ConfigError(f"the answers of the task {task.name} are no statements", hint="leave out --predictions")
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a folder" if path.is_dir() else "lies in a folder that does not exist"
        raise ConfigError(f"--predictions {path} {problem}", hint="name a file in a folder that exists")


def write_predictions(path: Path, folder: EvaluationFolder) -> None:
    """Write one line for each question of `folder`, in their order: the statement, a tab, the name of its database.

    A question without a statement gets NOTHING, which no evaluator takes for right.
    """
    records = folder.records()
    lines = []
    for name, questions in folder.sets().items():
        for question in questions:
            record = records.get((name, question.id))
            sql = _on_one_line(statement_in(record.answer)) if record else ""
            lines.append(f"{sql or NOTHING}\t{question.database or ''}\n")
    with atomic_write(path) as unfinished:
        unfinished.write_text("".join(lines), encoding="utf-8")


def _on_one_line(sql: str) -> str:
    """Return `sql` without comments, its white space folded outside quotes only, because there alone it means nothing.

    A line break or tab inside quotes becomes a blank: the file has no other way to write it.
    """

    def on_line(part: re.Match[str]) -> str:
        return _LINE_MARKS.sub(" ", part["quoted"]) if part["quoted"] else part["open"] or " "

    return _PARTS.sub(on_line, sql).strip()
