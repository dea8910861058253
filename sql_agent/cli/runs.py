"""List the runs in the folder `runs_dir`, the last one first: how each ended, its
reward in the last step, and the shares of accurate and of correct answers in
its first and last validation. With the name of a RUN, print its result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sql_agent.cli.command import add_words, new_parser, parse_words
from sql_agent.config.settings import load_settings
from sql_agent.runs.charts import result_table
from sql_agent.runs.console import Ui, print_table
from sql_agent.runs.report import RunReader, run_summaries, say_runs
from sql_agent.runs.run_folder import is_run

_EXAMPLES = """
  sql-agent runs
  sql-agent runs quickstart          untrained, fine-tuned and after GRPO
  sql-agent runs runs_dir=elsewhere
  sql-agent report --all             this list as a page, with the reports
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("runs", __doc__, _EXAMPLES)
    add_words(parser, "RUN", "names of runs, and any setting, such as runs_dir")
    arguments = parse_words(parser, argv)
    runs_dir = load_settings(arguments.overrides).runs_dir
    ui = Ui()
    for name in arguments.words:
        run = RunReader(Path(name) if is_run(Path(name)) else runs_dir / name)
        print_table(result_table(run.stages("")), ui.console)
    if arguments.words:
        return 0
    if summaries := run_summaries(runs_dir):
        say_runs(summaries, ui.say)
    else:
        ui.say(f"There is no run in {runs_dir}. To make one: sql-agent train --ci-fast")
    return 0
