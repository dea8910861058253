"""Draw a run as one HTML page that works offline: curves, validation, all rollouts
in full, and why some were dropped. Each run draws its page when it ends. This
command draws two runs on one page, with --serve a run that has not ended yet,
or with --all a list of all runs with links to their reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sql_agent.cli.command import new_parser
from sql_agent.config.settings import load_settings
from sql_agent.runs.report import LiveReport, RunReader, write_report, write_run_list
from sql_agent.system.servers import bind, new_token, page_url, serve

_EXAMPLES = """
  sql-agent report runs/night                     runs/night/report.html
  sql-agent report runs/night --compare runs/day  runs/night/comparison.html
  sql-agent report runs/night --serve             a page that follows the run
  sql-agent report --all                          runs/index.html
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("report", __doc__, _EXAMPLES)
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", nargs="?", help="folder of the run, such as runs/quickstart")
    add("--all", action="store_true", help="list all runs in the folder RUN, by default runs_dir")
    add("--compare", type=Path, metavar="RUN", help="folder of another run, to show on the same page")
    add("--serve", action="store_true", help="serve the page on 127.0.0.1 until Ctrl-C")
    add("--port", type=int, default=0, metavar="N", help="port of --serve (default: 0, any free port)")
    arguments = parser.parse_args(argv)
    if arguments.run is None and not arguments.all:
        parser.error("name the folder of a run, or give --all")
    if arguments.all:
        print(write_run_list(arguments.run or load_settings([]).runs_dir))
    elif arguments.serve:
        _serve([RunReader(folder) for folder in (arguments.run, arguments.compare) if folder], arguments.port)
    else:
        print(write_report(arguments.run, arguments.compare))
    return 0


def _serve(runs: Sequence[RunReader], port: int) -> None:
    with bind(port=port) as sock:
        sock.listen()  # the port is open before its address is shown
        token = new_token()
        print(f"{page_url(sock, token)}   Ctrl-C ends the server", flush=True)
        serve(LiveReport(runs).app(token), sock)
