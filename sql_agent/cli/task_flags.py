"""Define the flags for the task and the workflow, shared by train, ask, chat and evaluate."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_task_flags(parser: argparse.ArgumentParser) -> None:
    """Add --task, --data-dir, --workflow and --train-roles to `parser`."""
    task = parser.add_argument_group("task")
    task.add_argument("--task", metavar="NAME", help="medical (default), spider, or package.module:NAME of your own")
    task.add_argument("--data-dir", type=Path, metavar="DIR", help="databases and questions of the task spider, laid "
                      "out as Spider is")  # fmt: skip
    task.add_argument("--workflow", choices=("react", "check-rewrite"), help="react: the model calls the tool until it "
                      "answers (default); check-rewrite: it writes, checks and rewrites a statement")  # fmt: skip
    task.add_argument("--train-roles", metavar="REGEX", help="roles of a workflow that are trained "
                      "(default: write|rewrite)")  # fmt: skip


def task_flags(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the flags that were given as nested settings, the form that `load_settings` takes."""
    given = {
        "task": arguments.task,
        "spider": _given({"data_dir": arguments.data_dir}),
        "agent": _given({"workflow": arguments.workflow, "train_roles": arguments.train_roles}),
    }
    return {name: value for name, value in given.items() if value}


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
