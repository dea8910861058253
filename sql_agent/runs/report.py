"""Write the report of a run, or of two runs compared: one HTML page that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sql_agent.runs.page import render_page
from sql_agent.runs.run_lines import Row
from sql_agent.runs.run_reader import RunReader
from sql_agent.system.files import atomic_write


def write_report(run_dir: Path, compared: Path | None = None) -> Path:
    """Write `report.html` into `run_dir`, or `comparison.html` of it with the run `compared`, and return its path.

    An interrupted run may lack files, or have a last line that is cut off: the page says so. Raises DataError when a
    folder holds no run at all, and ConfigError when a run's task cannot be loaded.
    """
    runs = [RunReader(folder) for folder in (run_dir, compared) if folder is not None]
    target = run_dir / ("report.html" if compared is None else "comparison.html")
    with atomic_write(target) as unfinished:
        page = render_page(page_data(runs), [run.pack.blocks() for run in runs])
        unfinished.write_text(page, encoding="utf-8")
    return target


def page_data(runs: Sequence[RunReader]) -> Row:
    """Return the data of a page that shows `runs`, without their records."""
    tables = []
    for run in runs:
        table = run.validation_table()
        tables.append(table | ({"title": f"{table['title']}: {run.name}"} if len(runs) > 1 else {}))
    return {
        "title": "Run " + " · ".join(run.name for run in runs),
        "disclaimer": runs[0].disclaimer,
        "tables": tables,
        "runs": [run.data() for run in runs],
    }
