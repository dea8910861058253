"""What asks a run for its end: an interrupt, also in the background, and a closed terminal, unless that is ignored."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from sql_agent.system.process import handled_signals
from tests.support.processes import ROOT, run_command
from tests.support.signals import restored_signals


@pytest.fixture(params=[signal.SIGINT, signal.SIGHUP])
def ignored(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that the process was started to ignore: by a script that starts it with &, or by nohup."""
    with restored_signals():
        signal.signal(request.param, signal.SIG_IGN)
        yield request.param


async def test_an_interrupt_counts_in_the_background_and_a_closed_terminal_not_under_nohup(
    ignored: signal.Signals,
) -> None:
    asked: list[str] = []
    with handled_signals(lambda: asked.append("to end")):
        os.kill(os.getpid(), ignored)
        await asyncio.sleep(0.05)
    assert asked == (["to end"] if ignored is signal.SIGINT else [])


async def test_signals_are_handled_as_before_where_none_came(ignored: signal.Signals) -> None:
    with handled_signals(lambda: None):
        pass
    assert signal.getsignal(ignored) is signal.SIG_IGN


_INTERRUPTED_TWICE = """
import asyncio, atexit, os, signal, threading, time
from sql_agent.cli.command import exits_cleanly
from sql_agent.system.process import handled_signals

def main(argv):
    atexit.register(print, "Python's own end")
    threading.Thread(target=time.sleep, args=(60,)).start()  # for which Python would wait
    return asyncio.run({name}())

async def asked():
    with handled_signals(lambda: print("stopping"), again=lambda: print("two steps are saved")):
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGHUP)  # as a terminal that closes sends it
    print("saving")
    os.kill(os.getpid(), signal.SIGTERM)  # also while it cleans up
    await asyncio.sleep(60)

async def unasked():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

exits_cleanly(main)
"""


@pytest.mark.parametrize(
    ("name", "said"), [("asked", "stopping\nsaving\ntwo steps are saved\n"), ("unasked", "Interrupted.\n")]
)
def test_a_second_interrupt_ends_a_process_at_once_with_130_and_no_traceback(name: str, said: str) -> None:
    ended = run_command(sys.executable, "-c", _INTERRUPTED_TWICE.format(name=name), PYTHONPATH=str(ROOT))
    assert (ended.returncode, ended.stdout + ended.stderr) == (130, said)
