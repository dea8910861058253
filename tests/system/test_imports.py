"""An interrupt during a slow import ends the program, wherever in the import it comes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, run_command

# What comes in a callback of a weak reference is dropped by Python, and the import system has one for each import.
_LOST = """
import os, signal, weakref

class Module: pass

def callback(reference):
    os.kill(os.getpid(), signal.{name})
    for _ in range(1000): pass

module = Module()
reference = weakref.ref(module, callback)
del module
__version__ = "0"
"""
_CAUGHT = """
import os, signal

try:
    os.kill(os.getpid(), signal.{name})
    for _ in range(1000): pass
except BaseException:
    raise ImportError("an optional part is missing")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("package", [_LOST, _CAUGHT], ids=["in a callback", "in a try of its own"])
def test_an_interrupt_that_a_package_swallows_while_it_is_imported_ends_the_installation_check(
    package: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text(package.format(name=name))
    result = run_command(sys.executable, ROOT / "utils" / "check_install.py", PYTHONPATH=str(tmp_path))
    assert result.returncode == 128 + signal.SIGINT
    assert result.stderr.rstrip().endswith("Interrupted.")
    assert "torch" not in result.stdout, "nothing is checked after it"


def test_an_interrupt_that_a_package_swallows_while_a_command_is_imported_ends_it(tmp_path: Path) -> None:
    (tmp_path / "sqlglot.py").write_text(_LOST.format(name="SIGINT"))
    result = run_command(sys.executable, "-m", "sql_agent", "train", "--help", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (result.returncode, result.stdout) == (130, "")
