"""Ray is started and joined with its token, and left alone where that cannot work."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tests.support.processes import ROOT, run_command

SCRIPT = ROOT / "scripts" / "restart_ray.sh"


def test_ray_is_not_touched_without_a_role(tmp_path: Path) -> None:
    result = run_command("bash", SCRIPT, **with_ray_that("exit 0", tmp_path))
    assert result.returncode == 2
    assert "on the first host" in result.stderr
    assert not (tmp_path / "asked").exists()


def with_ray_that(answers: str, folder: Path) -> dict[str, str]:
    """A PATH with a `ray` in it that writes down its arguments and then does what `answers` says."""
    program = folder / "bin" / "ray"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> "{folder}/asked"\n{answers}\n')
    program.chmod(0o755)
    return {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


def test_ray_does_not_start_on_a_port_that_another_program_has(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = run_command("bash", SCRIPT, "head", port, **with_ray_that("exit 0", tmp_path))
    assert result.returncode == 2
    assert f"port {port} of this host is taken" in result.stderr
    assert "start" not in (tmp_path / "asked").read_text()


def test_a_host_without_the_clusters_token_is_told_so_and_keeps_its_ray(tmp_path: Path) -> None:
    environment = with_ray_that('[ "$1" != get-auth-token ]', tmp_path)
    result = run_command("bash", SCRIPT, "worker", "10.0.0.1", **environment)
    assert result.returncode == 2
    assert "auth_token" in result.stderr
    assert (tmp_path / "asked").read_text().split() == ["get-auth-token"]


def test_a_head_that_has_started_says_how_others_join_and_how_to_train(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    result = run_command("bash", SCRIPT, "head", port, **with_ray_that("exit 0", tmp_path))
    assert result.returncode == 0, result.stderr
    assert f"restart_ray.sh worker HEAD_ADDRESS:{port}" in result.stdout
    assert "RAY_ADDRESS=auto" in result.stdout and "--nnodes N verl.host=HEAD_ADDRESS" in result.stdout
