"""Whichever part of a run dies, it is said, replaced where it can be, and nothing that was finished is lost."""

from __future__ import annotations

import json
import resource
import signal
import time
from pathlib import Path

import pytest

from tests.support.processes import (
    assert_nothing_left,
    family_and_ports,
    finish,
    lines,
    runners_and_proxies,
    served_store,
    start,
    wait_for,
)
from tests.support.tiny_training import tiny_training


@pytest.fixture
def arguments(tmp_path: Path, tiny_model_folder: Path) -> list[str]:
    return tiny_training(tmp_path, tiny_model_folder)


@pytest.mark.slow
def test_killed_runners_and_proxies_are_replaced_and_a_run_stopped_as_by_ctrl_z_loses_nothing(
    arguments: list[str], tmp_path: Path
) -> None:
    metrics = tmp_path / "runs" / "r" / "metrics.jsonl"
    process = start([*arguments, "train.steps=10", "train.save_every=100"])
    wait_for(lambda: len(lines(metrics)) >= 1, process)
    (runner, _), (proxy,) = runners_and_proxies(process)
    for done, victim in ((2, runner), (4, proxy)):
        wait_for(lambda done=done: len(lines(metrics)) >= done, process)  # type: ignore[misc]
        victim.send_signal(signal.SIGKILL)
    wait_for(lambda: len(lines(metrics)) >= 7, process)
    family, ports = family_and_ports(process)
    for member in family:
        member.suspend()
    time.sleep(6)  # longer than the silence after which a runner counts as lost
    for member in family:
        member.resume()
    output = finish(process)
    assert process.returncode == 0, output
    said = [line for line in output.splitlines() if "was killed by SIGKILL; another took its place" in line]
    assert len(said) == 2 and said[0].startswith("Runner") and said[1].startswith("LLM proxy 0")
    steps = lines(metrics)
    assert [step["rollouts/kept"] for step in steps] == [4] * 10
    assert all(step["rollouts/enqueued"] - step["rollouts/failed"] == 4 for step in steps)
    assert [step["rollouts/enqueued"] for step in steps[7:]] == [4] * 3, output
    assert "Traceback" not in output
    assert_nothing_left(family, ports)


@pytest.mark.slow
def test_an_interrupt_ends_a_run_in_seconds_whose_supervisor_is_stopped_and_whose_runners_are_dead(
    arguments: list[str], tmp_path: Path
) -> None:
    metrics = tmp_path / "runs" / "r" / "metrics.jsonl"
    process = start([*arguments, "train.steps=500", "train.save_every=100"])
    wait_for(lambda: len(lines(metrics)) >= 1, process)
    family, ports = family_and_ports(process)
    runners, _ = runners_and_proxies(process)
    supervisor = runners[0].parent()
    assert supervisor is not None
    supervisor.suspend()
    for runner in runners:
        runner.kill()
    process.send_signal(signal.SIGINT)
    interrupted = time.monotonic()
    output = finish(process, timeout=30)
    assert process.returncode == 130, output
    assert time.monotonic() - interrupted < 5, output
    assert_nothing_left(family, ports)


@pytest.mark.slow
def test_a_second_interrupt_ends_a_run_at_once_with_what_is_saved_and_no_traceback(
    arguments: list[str], tmp_path: Path
) -> None:
    process = start([*arguments, "train.steps=500"])
    wait_for((tmp_path / "runs" / "r" / "checkpoints" / "step-000002").exists, process)
    family, ports = family_and_ports(process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    again = time.monotonic()
    output = finish(process, timeout=30)
    assert process.returncode == 130, output
    assert time.monotonic() - again < 2, output
    _asked, *_kept, ended = output[output.index("Stopping after") :].splitlines()
    assert ended.startswith("The run was interrupted after ") and "--resume run_name=r" in ended
    assert_nothing_left(family, ports)


@pytest.mark.slow
def test_a_disk_that_takes_no_more_is_named_with_the_file_and_the_command_that_goes_on(
    arguments: list[str], tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "r"
    process = start([*arguments, "train.steps=500", "train.save_every=3"])
    wait_for(lambda: len(lines(run / "metrics.jsonl")) >= 4, process)
    # The next that is written are rollouts; a checkpoint only after step 6.
    limit = (run / "rollouts.jsonl").stat().st_size + 10
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    output = finish(process, timeout=30)
    assert process.returncode == 2, output
    (wrong,) = (line for line in output.splitlines() if line.startswith("error: "))
    assert wrong.startswith(f"error: could not write to {run / 'rollouts.jsonl'}, where ")
    assert wrong.endswith("B are free: File too large")
    assert "  next: free space on that disk, then the same command with --resume run_name=r" in output.splitlines()


@pytest.mark.slow
def test_a_store_that_is_stopped_is_waited_for_and_one_that_is_killed_ends_the_run_with_its_finished_steps_saved(
    arguments: list[str], tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "r"
    with served_store() as (store, address):
        command = [*arguments, "train.steps=500", "train.save_every=100", f"--external-store-address={address}"]
        process = start(command, AGL_MANAGED_STORE="0")
        wait_for(lambda: len(lines(run / "metrics.jsonl")) >= 2, process)
        store.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        wait_for(lambda: f"The store at {address} does not answer, for " in process.printed(), process)
        assert time.monotonic() - stopped < 8
        store.send_signal(signal.SIGCONT)
        wait_for(lambda: f"The store at {address} answers again." in process.printed(), process)
        steps_before = len(lines(run / "metrics.jsonl"))
        wait_for(lambda: len(lines(run / "metrics.jsonl")) > steps_before + 1, process)
        family, ports = family_and_ports(process)
        store.kill()
        killed = time.monotonic()
        output = finish(process, timeout=30)
        seconds = time.monotonic() - killed
    assert process.returncode == 2, output
    assert "the store does not answer any more" in output and "Traceback" not in output
    assert output.count("the run waits for it") == 1, "not for the one that was killed"
    steps = lines(run / "metrics.jsonl")
    assert all(step["rollouts/with_triplets"] == step["rollouts/finished"] == 4 for step in steps)
    saved = sorted((run / "checkpoints").glob("step-*/state.json"))
    assert json.loads(saved[-1].read_text())["step"] == len(steps)
    assert "--resume run_name=r" in output
    assert_nothing_left(family, ports)
    assert seconds < 12, output


@pytest.mark.slow
def test_a_supervisor_that_is_stopped_and_killed_before_the_first_step_ends_the_run(
    arguments: list[str], tmp_path: Path
) -> None:
    gold = {"answer": "capsule", "sql": "SELECT form FROM drugs_info WHERE med_name = 'Drug 1'"}
    questions = [json.loads(line) | gold for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    process = start([*arguments, "sft.steps=2000", "sft.batch=1"])
    wait_for(lambda: "SFT 1/2000" in process.printed(), process)
    supervisor = runners_and_proxies(process)[0][0].parent()
    assert supervisor is not None
    family, ports = family_and_ports(process)
    supervisor.suspend()
    supervisor.kill()
    output = finish(process, timeout=10)
    assert process.returncode == 2, output
    assert "error: the supervisor of runners and proxies died and cannot be replaced" in output
    assert "the run may have the same name" in output, "there is nothing to resume"
    assert not list((tmp_path / "runs" / "r").glob("checkpoints/*"))
    assert_nothing_left(family, ports)
