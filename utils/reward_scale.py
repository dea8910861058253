"""Look at a judge's scores and spread them: python utils/reward_scale.py SOURCE... (see --help)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sql_agent.cli.exit_codes import exits_cleanly, leave
from sql_agent.cli.rescale import main

if __name__ == "__main__":
    leave(exits_cleanly(main))
