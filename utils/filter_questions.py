"""Have the teacher model keep or drop questions: python utils/filter_questions.py FILE --out KEPT (see --help)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sql_agent.cli.command import leave, run_command

if __name__ == "__main__":
    leave(run_command("data", ["filter", *sys.argv[1:]]))
