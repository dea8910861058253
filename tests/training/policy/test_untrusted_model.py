"""A model folder from somebody else runs no code, whatever its files say and whatever is typed."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sql_agent.errors import ModelError
from sql_agent.training.policy.model import load_policy
from sql_agent.training.serving.tokenizer import load_tokenizer
from tests.support.processes import ROOT
from tests.support.small_database import make_database


@pytest.fixture
def evil(tmp_path: Path, tiny_model_folder: Path) -> Path:
    """A model folder whose config.json and tokenizer_config.json name classes of its evil.py."""
    folder = tmp_path / "evil"
    shutil.copytree(tiny_model_folder, folder)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "evil"}
    config["auto_map"] = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM"), "evil.Evil")
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer |= {"tokenizer_class": "EvilTokenizer", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return folder


def test_code_in_a_model_folder_is_not_run_when_it_is_loaded(
    evil: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))
    with pytest.raises(ModelError, match="custom code"):
        load_policy(str(evil), cache_dir=tmp_path)
    with pytest.raises(ModelError, match="custom code"):
        load_tokenizer(str(evil))
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_command_that_is_given_such_a_folder_ends_with_an_error_although_y_is_typed(
    evil: Path, tmp_path: Path
) -> None:
    database = make_database(tmp_path / "medical.db")
    result = subprocess.run(
        [sys.executable, "-m", "sql_agent", "ask", "How?", f"--model={evil}", f"database.path={database}"],
        input="y\n" * 9, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    assert "custom code" in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "ran").exists()
