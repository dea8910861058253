"""However verl's process stands, a run that ends takes it along, and it ends at each stage."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sql_agent.config.settings import load_settings
from sql_agent.errors import TrainingError
from sql_agent.runs.console import Ui
from sql_agent.runs.run_log import RunLog
from sql_agent.training.verl.run_verl import VerlGrpo, _end


async def test_verl_that_is_stopped_ends_with_its_run_as_soon_as_it_is_asked() -> None:
    verl = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import time; time.sleep(60)", start_new_session=True, stderr=asyncio.subprocess.DEVNULL
    )
    os.kill(verl.pid, signal.SIGSTOP)
    asked = time.monotonic()
    await _end(verl)
    assert time.monotonic() - asked < 5


async def test_what_ends_a_run_while_the_model_is_fine_tuned_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start_for_hours(*_: object, **streams: Any) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", "import time; time.sleep(3600)", start_new_session=True, **streams
        )

    monkeypatch.setattr(VerlGrpo, "_start_module", start_for_hours)
    processes: Any = None
    algorithm = VerlGrpo(load_settings(), RunLog(tmp_path), Ui(), processes, resume=False)
    algorithm._stop = asyncio.Event()
    algorithm._monitor = Mock(failure=None)
    verl: Any = Mock(returncode=None)
    asyncio.get_running_loop().call_later(0.1, algorithm._fail, TrainingError("the supervisor died"))
    async with asyncio.timeout(10):
        await algorithm._fine_tune(verl)
    assert algorithm._monitor.failure.message == "the supervisor died"
