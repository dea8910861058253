"""Write the page of an evaluation from a template."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

_LONGEST_TEXT = 400  # characters in a table; a click shows the rest


def write_html(folder: Path, template: str, *, date: str, disclaimer: str, **values: Any) -> Path:
    """Render `template` with `values` and what all pages show, write `report.html` into `folder`, return its path.

    `date` is in ISO format, in UTC; `disclaimer` is the task's.
    """
    environment = Environment(
        loader=PackageLoader("sql_agent.judge_eval"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.get_template(template).render(
        date=f"{datetime.fromisoformat(date):%Y-%m-%d %H:%M} UTC",
        disclaimer=disclaimer,
        longest=_LONGEST_TEXT,
        **values,
    )
    target = folder / "report.html"
    target.write_text(page, encoding="utf-8")
    return target
