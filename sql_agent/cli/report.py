"""Draw a run as one HTML page: sql-agent report runs/NAME"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from sql_agent.cli.parser import help_text
from sql_agent.tracking.report import write_report

_DESCRIPTION = """\
Draw a run as one HTML page that works offline: curves, validation, all rollouts
in full, and why some were dropped. A run draws it when it ends; use this to see
two runs on one page, or one that was drawn by an older version."""

_EXAMPLES = """
  sql-agent report runs/night                     runs/night/report.html
  sql-agent report runs/night --compare runs/day  runs/night/comparison.html
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page into the run's folder, print its path and return 0."""
    parser = argparse.ArgumentParser(prog="sql-agent report", **help_text(_DESCRIPTION, _EXAMPLES))
    parser.add_argument("run", type=Path, metavar="RUN", help="a folder such as runs/quickstart")
    parser.add_argument("--compare", type=Path, metavar="RUN", help="another run, shown on the same page")
    arguments = parser.parse_args(argv)
    print(write_report(arguments.run, arguments.compare))
    return 0
