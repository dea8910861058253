"""Run train_sql_agent.py with `tests.support.fake_verl` in place of verl: takes the same arguments."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from sql_agent.cli import train  # noqa: E402
from sql_agent.cli.command import exits_cleanly  # noqa: E402
from sql_agent.training.verl import run_verl  # noqa: E402

mock.patch("sql_agent.cli.train_checks.verl_is_installed", lambda: True).start()
mock.patch("sql_agent.training.verl.logs._GRACE_S", 1.0).start()  # verl never ends by itself here
os.environ.setdefault("SQLAGENT_WARM", "0")  # there is no verl to import
run_verl.TRAINER_MODULE = "tests.support.fake_verl"

if __name__ == "__main__":
    sys.exit(exits_cleanly(train.main))
