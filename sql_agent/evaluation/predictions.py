"""Write the answers of an evaluation as the public evaluators of text-to-SQL read predictions."""

from __future__ import annotations

from pathlib import Path

from sql_agent.data.statement_text import statement_in
from sql_agent.data.task import load_task
from sql_agent.errors import ConfigError
from sql_agent.evaluation.folder import EvaluationFolder
from sql_agent.system.files import atomic_write

NOTHING = "NONE"  # an empty line would part two conversations, and each question needs its line


def write_predictions(path: Path, folder: EvaluationFolder) -> None:
    """Write one line for each question of `folder`, in their order: the statement, a tab, the name of its database.

    A question without a statement gets NOTHING, which no evaluator takes for right. Raises ConfigError for a task whose
    answers are no statements.
    """
    task = load_task(folder.about().settings["task"])
    if not task.answer_is_sql:
        raise ConfigError(f"the answers of the task {task.name} are no statements", hint="leave out --predictions")
    records = folder.records()
    lines = []
    for name, questions in folder.sets().items():
        for question in questions:
            record = records.get((name, question.id))
            sql = " ".join(statement_in(record.answer).split()) if record else ""
            lines.append(f"{sql or NOTHING}\t{question.database or ''}\n")
    with atomic_write(path) as unfinished:
        unfinished.write_text("".join(lines), encoding="utf-8")
