"""Check this installation: python utils/check_install.py [--gpu] [--online] [--json]. The same as `sql-agent check`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sql_agent.cli.command import leave, run_command

if __name__ == "__main__":
    leave(run_command("check"))
