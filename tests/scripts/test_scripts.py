"""The shell scripts: what they carry arrives whole, and what they cannot do they say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "scripts" / "offline_bundle.sh"


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True, text=True, check=False, timeout=300, env=os.environ | {"PATH": path} | environment,
    )  # fmt: skip


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, tiny_model_folder: Path) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "requirements.txt").write_text("tabulate==0.9.0\nsniffio==1.3.1\n")
    result = run(
        "bash", BUNDLE, "pack", folder / "out", "--requirements", folder / "requirements.txt",
        "--exclude", "sniffio", "--model", tiny_model_folder, "--part-mb", "1",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return folder / "out"


def test_a_bundle_brings_packages_and_model_to_another_place(
    bundle: Path, tmp_path: Path, tiny_model_folder: Path
) -> None:
    result = run("bash", bundle / "offline_bundle.sh", "unpack", bundle, tmp_path / "there")
    assert result.returncode == 0, result.stderr
    assert f"PYTHONPATH={tmp_path / 'there' / 'site'}" in result.stdout
    assert (tmp_path / "there/site/tabulate/__init__.py").exists()
    assert not list((tmp_path / "there/site").glob("sniffio*")), "excluded: the host has it"
    sent, arrived = tiny_model_folder / "model.safetensors", tmp_path / "there/model/model.safetensors"
    assert arrived.read_bytes() == sent.read_bytes()


def test_a_damaged_part_is_refused(bundle: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in bundle.iterdir():
        (damaged / path.name).write_bytes(path.read_bytes())
    part = damaged / "model.part.000"
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    result = run("bash", BUNDLE, "unpack", damaged, tmp_path / "there")
    assert result.returncode == 2
    assert "model.part.000" in result.stdout + result.stderr
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pack"], "no folder named"),
        (["pack", "OUT", "--model", "/nowhere"], "not a Hugging Face folder"),
        (["pack", "OUT", "--colour", "red"], "unknown option --colour"),
        (["unpack", "/nowhere", "X"], "two folders are needed"),
        ([], "with a network"),
    ],
)
def test_wrong_use_is_explained(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = run("bash", BUNDLE, *[str(tmp_path / a) if a in {"OUT", "X"} else a for a in arguments])
    assert result.returncode == 2
    assert message in result.stderr


def test_exporting_says_which_checkpoints_there_are(tmp_path: Path) -> None:
    export = ROOT / "scripts" / "export_checkpoint.sh"
    result = run("bash", export, tmp_path, tmp_path / "out")
    assert result.returncode == 2 and "has no checkpoint of the verl backend" in result.stderr
    (tmp_path / "checkpoints/global_step_20").mkdir(parents=True)
    result = run("bash", export, tmp_path, tmp_path / "out", "--step", 10)
    assert result.returncode == 2 and "no checkpoint of step 10" in result.stderr and "[20]" in result.stderr


def test_ray_is_not_touched_without_a_role(tmp_path: Path) -> None:
    result = run("bash", ROOT / "scripts" / "restart_ray.sh", **with_ray_that("exit 0", tmp_path))
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
        script = ROOT / "scripts" / "restart_ray.sh"
        result = run("bash", script, "head", port, **with_ray_that("exit 0", tmp_path))
    assert result.returncode == 2
    assert f"port {port} of this host is taken" in result.stderr
    assert "start" not in (tmp_path / "asked").read_text()


def test_a_host_without_the_clusters_token_is_told_so_and_keeps_its_ray(tmp_path: Path) -> None:
    environment = with_ray_that('[ "$1" != get-auth-token ]', tmp_path)
    result = run("bash", ROOT / "scripts" / "restart_ray.sh", "worker", "10.0.0.1", **environment)
    assert result.returncode == 2
    assert "auth_token" in result.stderr
    assert (tmp_path / "asked").read_text().split() == ["get-auth-token"]


def test_a_head_that_has_started_says_how_others_join_and_how_to_train(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    result = run("bash", ROOT / "scripts" / "restart_ray.sh", "head", port, **with_ray_that("exit 0", tmp_path))
    assert result.returncode == 0, result.stderr
    assert f"restart_ray.sh worker HEAD_ADDRESS:{port}" in result.stdout
    assert "RAY_ADDRESS=auto" in result.stdout and "--nnodes N verl.host=HEAD_ADDRESS" in result.stdout


@pytest.fixture
def export(tmp_path: Path, tiny_model_folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Exports a run into tmp_path/out. verl is not here: a stand-in for its merger gives the tiny model.

    It fails, as verl's does, unless our plugin is named to it.
    """
    merger = tmp_path / "site" / "verl" / "model_merger"
    merger.mkdir(parents=True)
    (merger.parent / "__init__.py").touch()
    (merger / "__init__.py").touch()
    (merger / "__main__.py").write_text(
        "import json, os, shutil, sys\n"
        "from pathlib import Path\n"
        "assert os.environ['VERL_USE_EXTERNAL_MODULES'] == 'sql_agent.backends.verl.plugin', 'unknown attention'\n"
        "out = Path(sys.argv[sys.argv.index('--target_dir') + 1])\n"
        f"shutil.copytree({str(tiny_model_folder)!r}, out)\n"
        "config = json.loads((out / 'config.json').read_text()) | {'attn_implementation': 'torch_varlen'}\n"
        "(out / 'config.json').write_text(json.dumps(config))\n"
        "if 'ADAPTER' in os.environ: shutil.copytree(os.environ['ADAPTER'], out / 'lora_adapter')\n"
        "sys.exit(int(os.environ.get('FAIL', 0)))\n"
    )
    (tmp_path / "run" / "checkpoints" / "global_step_5" / "actor").mkdir(parents=True)
    command = ("bash", ROOT / "scripts" / "export_checkpoint.sh", tmp_path / "run", tmp_path / "out")
    return partial(run, *command, PYTHONPATH=str(tmp_path / "site"))


def test_an_export_merges_where_our_attention_is_known_and_leaves_a_model_that_needs_it_not(
    export: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    failed = export(FAIL="1")
    assert failed.returncode == 2
    assert not (tmp_path / "out").exists(), "half an export is none, and the same command may be tried again"
    result = export()
    assert result.returncode == 0, result.stderr
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.config._attn_implementation == "sdpa"


def test_what_adapters_learned_is_in_the_exported_weights(
    export: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, tiny_model_folder: Path
) -> None:
    base = AutoModelForCausalLM.from_pretrained(tiny_model_folder)
    learned = get_peft_model(base, LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj"], init_lora_weights=False))
    learned.save_pretrained(str(tmp_path / "adapter"))
    expected = learned.merge_and_unload().state_dict()
    result = export(ADAPTER=str(tmp_path / "adapter"))
    assert result.returncode == 0, result.stderr
    untrained = AutoModelForCausalLM.from_pretrained(tiny_model_folder).state_dict()
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert exported.keys() == untrained.keys()
    assert all(torch.allclose(exported[name], expected[name], atol=1e-6) for name in exported)
    assert any(not torch.equal(exported[name], untrained[name]) for name in exported)
