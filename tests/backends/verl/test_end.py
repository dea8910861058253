"""However verl's process stands, a run that ends takes it along."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

from sql_agent.backends.verl.algorithm import _end


async def test_verl_that_is_stopped_ends_with_its_run_as_soon_as_it_is_asked() -> None:
    verl = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import time; time.sleep(60)", start_new_session=True, stderr=asyncio.subprocess.DEVNULL
    )
    os.kill(verl.pid, signal.SIGSTOP)
    asked = time.monotonic()
    await _end(verl)
    assert time.monotonic() - asked < 5
