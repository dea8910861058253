"""A bundle carries packages and a model to a host without a network, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import ROOT, run_command

SCRIPT = ROOT / "scripts" / "offline_bundle.sh"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, tiny_model_folder: Path) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "requirements.txt").write_text("tabulate==0.9.0\nsniffio==1.3.1\n")
    result = run_command(
        "bash", SCRIPT, "pack", folder / "out", "--requirements", folder / "requirements.txt",
        "--exclude", "sniffio", "--model", tiny_model_folder, "--part-mb", "1",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return folder / "out"


def test_a_bundle_brings_packages_and_model_to_another_place(
    bundle: Path, tmp_path: Path, tiny_model_folder: Path
) -> None:
    result = run_command("bash", bundle / "offline_bundle.sh", "unpack", bundle, tmp_path / "there")
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
    *sound, last = part.read_bytes()
    part.write_bytes(bytes([*sound, last ^ 1]))  # not a fixed byte, because the part may end in that one
    result = run_command("bash", SCRIPT, "unpack", damaged, tmp_path / "there")
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
    result = run_command("bash", SCRIPT, *[str(tmp_path / a) if a in {"OUT", "X"} else a for a in arguments])
    assert result.returncode == 2
    assert message in result.stderr
