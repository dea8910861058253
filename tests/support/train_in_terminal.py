"""Run train_sql_agent.py, with the same arguments, in the terminal whose device the variable TERMINAL names."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "sql_agent" / "train_sql_agent.py"

if __name__ == "__main__":
    terminal = os.open(os.environ["TERMINAL"], os.O_RDWR)  # a session's first one becomes its controlling terminal
    for stream in range(3):
        os.dup2(terminal, stream)
    os.close(terminal)
    sys.argv[0] = str(SCRIPT)
    sys.path[0] = str(SCRIPT.parent)
    runpy.run_path(str(SCRIPT), run_name="__main__")
