"""The environment of the scripts: installed once, and again when what it holds would be out of date."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.processes import ROOT, run_command

# Makes what `python -m venv FOLDER` makes, with a pip that only writes down what it was asked.
PYTHON = """#!/bin/sh
[ "$1" = -m ] || exit 0
for folder; do :; done
mkdir -p "$folder/bin"
cp "$0" "$folder/bin/python"
printf '%s\\n' '#!/bin/sh' 'echo "$@" >>"$ASKED"' '[ -z "$FAIL" ]' >"$folder/bin/pip"
chmod +x "$folder/bin/pip"
echo "VIRTUAL_ENV=$folder; PATH=$folder/bin:\\$PATH; deactivate() { :; }" >"$folder/bin/activate"
"""


class Checkout:
    """A checkout that has nothing but what its environment is made from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        self._asked = folder / "asked"
        self._python = folder / "python"
        self._python.write_text(PYTHON)
        self._python.chmod(0o755)
        (self.folder / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "environment.sh", self.folder / "scripts")
        (self.folder / "pyproject.toml").write_text("[project]")

    def installed_by(self, extras: str, *, fail: str = "") -> list[str]:
        """Make the environment; returns what pip was asked to install, in the order of its commands."""
        self._asked.write_text("")
        run_command(
            "bash", "-euc", f'. {self.folder}/scripts/environment.sh; make_environment "{extras}"',
            PYTHON=str(self._python), ASKED=str(self._asked), FAIL=fail, VENV=str(self.folder / ".venv"),
        )  # fmt: skip
        return [word for word in self._asked.read_text().split() if word != "install" and not word.startswith("-")]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_what_is_installed_already_is_not_asked_for_again(checkout: Checkout) -> None:
    pip, torch, project, _ = checkout.installed_by("[dev]")
    assert pip == "pip", "a newer one"
    assert torch.startswith("torch==")
    assert project == f"{checkout.folder}[dev]"
    assert checkout.installed_by("[dev]") == []
    assert f"{checkout.folder}" in checkout.installed_by(""), "the quickstart's, without the tools of development"
    assert checkout.installed_by("[dev]") == checkout.installed_by("") == []


def test_other_requirements_are_installed(checkout: Checkout) -> None:
    checkout.installed_by("[dev]")
    (checkout.folder / "pyproject.toml").write_text("[project]\ndependencies = ['more']")
    assert len(checkout.installed_by("[dev]")) == 4


def test_a_moved_checkout_gets_an_environment_of_its_new_place(checkout: Checkout) -> None:
    checkout.installed_by("[dev]")
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("elsewhere"))
    assert f"{checkout.folder}[dev]" in checkout.installed_by("[dev]")
    assert f"VIRTUAL_ENV={checkout.folder}/" in (checkout.folder / ".venv/bin/activate").read_text()


def test_an_installation_that_failed_is_tried_again(checkout: Checkout) -> None:
    assert len(checkout.installed_by("[dev]", fail="1")) == 1
    assert len(checkout.installed_by("[dev]")) == 4
