"""Write the answers of an evaluation in the prediction format of the public text-to-SQL evaluators."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from sql_agent.database.sqlite.dialect import SQLITE
from sql_agent.errors import ConfigError
from sql_agent.reward.execution_match import statement_in
from sql_agent.schemas import Question
from sql_agent.system.files import atomic_write
from sql_agent.tasks.task import load_task

_NO_STATEMENT = "NONE"  # for a missing statement, because an empty line ends a conversation
_PARTS = re.compile(rf"{SQLITE.parts.pattern}|(?P<blanks>\s+)", re.DOTALL)  # the public evaluators run SQLite
_LINE_MARKS = re.compile(r"[\t\r\n]")


def check_predictions(path: Path, task_name: str) -> None:
    """Raise ConfigError unless the answers of the task are SQL statements and `path` can be a file."""
    task = load_task(task_name)
    if not task.answer_is_sql:
        raise ConfigError(f"the answers of the task {task.name} are not SQL statements", hint="leave out --predictions")
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a folder" if path.is_dir() else "lies in a folder that does not exist"
        raise ConfigError(f"--predictions {path} {problem}", hint="name a file in a folder that exists")


def write_predictions(path: Path, answers: Iterable[tuple[Question, str]]) -> None:
    """Write the statement in each answer, or NONE.

    A file NAME.json has an object with a statement for each question's id, as EHRSQL's scorer reads it. Any other file
    has a line for each question, as Spider's evaluators read it: the statement, a tab, the name of the database.
    """
    if path.suffix == ".json":
        found = {question.id: statement_in(answer) or _NO_STATEMENT for question, answer in answers}
        text = json.dumps(found, ensure_ascii=False, indent=1) + "\n"
    else:
        lines = ((_on_one_line(statement_in(answer)), question.database or "") for question, answer in answers)
        text = "".join(f"{sql or _NO_STATEMENT}\t{database}\n" for sql, database in lines)
    with atomic_write(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _on_one_line(sql: str) -> str:
    """Return `sql` without comments, with white space outside quotes reduced to single spaces.

    A line break or tab inside quotes becomes a space, because the file format has no escape for it.
    """

    def on_line(part: re.Match[str]) -> str:
        return _LINE_MARKS.sub(" ", part["quoted"]) if part["quoted"] else part["open"] or " "

    return _PARTS.sub(on_line, sql).strip()
