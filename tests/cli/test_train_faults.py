"""Whichever part of a run dies, it is said, replaced where it can be, and nothing that was finished is lost."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from tests.support.processes import assert_nothing_left, family_and_ports, finish, lines, runners_and_proxies, start
from tests.support.processes import wait_for as wait_until
from tests.support.tiny_training import tiny_training


@pytest.fixture
def arguments(tmp_path: Path, tiny_model_folder: Path) -> list[str]:
    return tiny_training(tmp_path, tiny_model_folder)


@pytest.mark.slow
def test_runners_and_proxies_that_are_killed_are_replaced_and_every_rollout_is_accounted_for(
    arguments: list[str], tmp_path: Path
) -> None:
    metrics = tmp_path / "runs" / "r" / "metrics.jsonl"
    process = start([*arguments, "train.steps=8", "train.save_every=100"])
    wait_until(lambda: len(lines(metrics)) >= 1, process)
    (runner, _), (proxy,) = runners_and_proxies(process)
    for done, victim in ((2, runner), (4, proxy)):
        wait_until(lambda done=done: len(lines(metrics)) >= done, process)  # type: ignore[misc]
        victim.send_signal(signal.SIGKILL)
    wait_until(lambda: len(lines(metrics)) >= 6, process)
    family, ports = family_and_ports(process)
    output = finish(process)
    assert process.returncode == 0, output
    said = [line for line in output.splitlines() if "was killed by SIGKILL; another took its place" in line]
    assert len(said) == 2 and said[0].startswith("Runner") and said[1].startswith("LLM proxy 0")
    steps = lines(metrics)
    assert [step["rollouts/kept"] for step in steps] == [4] * 8
    assert all(step["rollouts/enqueued"] - step["rollouts/failed"] == 4 for step in steps)
    assert "Traceback" not in output
    assert_nothing_left([p for p in family if p.pid != process.pid or psutil.pid_exists(p.pid)], ports)
