"""List the runs with their results: sql-agent runs"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sql_agent.cli.command import help_text
from sql_agent.config.settings import load_settings
from sql_agent.runs.console import Ui
from sql_agent.runs.run_list import run_summaries, say_runs

_DESCRIPTION = """\
List the runs in the folder `runs_dir`, the last one first: how each ended, its
reward in the last step, and the shares of accurate and of correct answers in
its first and last validation."""

_EXAMPLES = """
  sql-agent runs
  sql-agent runs runs_dir=elsewhere
  sql-agent report --all             the same as a page, with the reports
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the list and return 0. Raises DataError for a damaged file."""
    parser = argparse.ArgumentParser(prog="sql-agent runs", **help_text(_DESCRIPTION, _EXAMPLES))
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="any setting, such as runs_dir")
    runs_dir = load_settings(parser.parse_args(argv).overrides).runs_dir
    ui = Ui()
    if summaries := run_summaries(runs_dir):
        say_runs(summaries, ui.say)
    else:
        ui.say(f"There is no run in {runs_dir}. To make one: sql-agent train --ci-fast")
    return 0
