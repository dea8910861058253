"""Draw a run as one HTML page: sql-agent report runs/NAME"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from sql_agent.tracking.report import write_report


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page into the run's folder and print its path."""
    parser = argparse.ArgumentParser(prog="sql-agent report", description="Draw a run as one HTML page.")
    parser.add_argument("run", type=Path, help="a folder such as runs/quickstart")
    print(write_report(parser.parse_args(argv).run))
    return 0
