"""Ask the agent a few questions end to end: python sqlagent_test.py [--model PATH] (see --help)."""

import sys
from pathlib import Path

# Python puts a script's folder first on the path, so that modules in this folder would hide others.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from sql_agent.cli.command import leave, run_command  # noqa: E402

if __name__ == "__main__":
    leave(run_command("ask"))
