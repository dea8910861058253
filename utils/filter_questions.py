"""Have the teacher model keep or drop questions: python utils/filter_questions.py FILE --out KEPT (see --help)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sql_agent.cli.data_teacher import main
from sql_agent.cli.exit_codes import exits_cleanly, leave

if __name__ == "__main__":
    leave(exits_cleanly(main))
