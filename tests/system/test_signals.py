"""What asks a run for its end: an interrupt, also in the background, and a closed terminal, unless that is ignored."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from sql_agent.system.signals import handled_signals


@pytest.fixture(params=[signal.SIGINT, signal.SIGHUP])
def ignored(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that the process was started to ignore: by a script that starts it with &, or by nohup."""
    before = signal.signal(request.param, signal.SIG_IGN)
    yield request.param
    signal.signal(request.param, before)


async def test_an_interrupt_counts_in_the_background_and_a_closed_terminal_not_under_nohup(
    ignored: signal.Signals,
) -> None:
    asked: list[str] = []
    with handled_signals(lambda: asked.append("to end")):
        os.kill(os.getpid(), ignored)
        await asyncio.sleep(0.05)
    assert asked == (["to end"] if ignored is signal.SIGINT else [])
    assert signal.getsignal(ignored) is signal.SIG_IGN, "as before"
