"""Run one command: `sql-agent COMMAND`, or `python -m sql_agent COMMAND` from a checkout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from sql_agent.cli.command import NOT_ADVICE, leave, run_command

# Each name is a module of cli/ with a `main(argv)`. It is imported only to run it, because some imports take seconds.
COMMANDS = {
    "train": "train a model on questions about a database",
    "init": "describe a database in a file, to train and ask without code",
    "ask": "ask a model; see every query, its rows, the answer and the reward",
    "chat": "ask models, in the terminal or on a page; rate their answers",
    "evaluate": "measure models on question files, with intervals; compare them",
    "data": "make or import a database; make or check questions with gold SQL",
    "judge": "measure how far a judge can be trusted",
    "store": "serve a store for runs in other terminals and on other hosts",
    "mcp": "serve the query tool to MCP clients, over stdio or HTTP",
    "runs": "list the runs with their results",
    "report": "draw a run, or the list of all runs, as one HTML page",
    "export": "turn a checkpoint of a run into a Hugging Face folder with a model card",
    "serve": "serve the agent with its database as an OpenAI-compatible endpoint",
    "settings": "list all settings with their defaults and meanings",
    "check": "check this installation; says how to fix what fails",
}

_EPILOG = f"""\
Start here:
  sql-agent check                        is everything installed?
  sql-agent train --ci-fast              one training step on the sample data
  sql-agent ask "How is hypothyroidism treated?"

`sql-agent COMMAND --help` explains a command.
{NOT_ADVICE}"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names, and return its exit code (2 for wrong arguments or input)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in {"-h", "--help"}:
        commands = "\n".join(f"  {name:10} {summary}" for name, summary in COMMANDS.items())
        print(f"usage: sql-agent COMMAND [ARGUMENTS]\n\nCommands:\n{commands}\n\n{_EPILOG}")
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"error: there is no command {name!r}", file=sys.stderr)
        print(f"  next: use one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return run_command(name, rest)


def end() -> NoReturn:
    leave(main())


if __name__ == "__main__":
    end()
