"""Draw a run as one HTML page: sql-agent report runs/NAME"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from sql_agent.cli.parser import help_text
from sql_agent.tracking.report import write_report

_DESCRIPTION = """\
Draw a run as one HTML page that works offline: reward, validation, rollouts in
full, and why some were dropped. A run draws it when it ends; use this to look
at a run that is still going on."""

_EXAMPLES = """
  sql-agent report runs/quickstart       writes runs/quickstart/report.html
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page into the run's folder, print its path and return 0."""
    parser = argparse.ArgumentParser(prog="sql-agent report", **help_text(_DESCRIPTION, _EXAMPLES))
    parser.add_argument("run", type=Path, metavar="RUN", help="a folder such as runs/quickstart")
    print(write_report(parser.parse_args(argv).run))
    return 0
