"""A checkpoint of either backend becomes a Hugging Face folder that needs nothing of ours."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sql_agent.cli.command import exits_cleanly
from sql_agent.cli.export import main
from tests.support.processes import ROOT, run_command
from tests.support.small_run import make_run

SCRIPT = ROOT / "scripts" / "export_checkpoint.sh"


def test_exporting_says_which_checkpoints_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*arguments: object) -> str:
        assert exits_cleanly(main, [*map(str, arguments)]) == 2
        return capsys.readouterr().err

    assert "there is no run at" in refused(tmp_path / "none", tmp_path / "out")
    assert "has no checkpoint" in refused(tmp_path, tmp_path / "out")
    (tmp_path / "checkpoints/global_step_20").mkdir(parents=True)
    error = refused(tmp_path, tmp_path / "out", "--step", 10)
    assert "no checkpoint of step 10" in error and "step that has one: 20" in error


def test_a_checkpoint_of_the_local_backend_is_copied(tmp_path: Path, tiny_model_folder: Path) -> None:
    for step in (5, 10):
        shutil.copytree(tiny_model_folder, tmp_path / f"checkpoints/step-{step:06}/model")
        (tmp_path / f"checkpoints/step-{step:06}/state.json").write_text("{}")
    (tmp_path / "checkpoints/step-000010/model/newest").touch()
    result = run_command("bash", SCRIPT, tmp_path, tmp_path / "out")
    assert result.returncode == 0, result.stderr
    exported = {path.name for path in (tmp_path / "out").iterdir()}
    assert exported == {"newest", *(path.name for path in tiny_model_folder.iterdir())}


def test_a_run_is_exported_with_its_prompt_its_tool_and_a_model_card(tmp_path: Path, tiny_model_folder: Path) -> None:
    run, out = make_run(tmp_path / "night"), tmp_path / "trained"
    (run / "tool.json").write_text('{"type": "function"}', encoding="utf-8")
    shutil.copytree(tiny_model_folder, run / "checkpoints/step-000002/model")
    (run / "checkpoints/step-000002/state.json").write_text("{}", encoding="utf-8")
    assert main([str(run), str(out)]) == 0
    assert (out / "prompt.txt").read_text(encoding="utf-8") == "You answer questions.\n"
    card = (out / "README.md").read_text(encoding="utf-8")
    for part in (
        "license: apache-2.0",
        "Run `night`, checkpoint `step-000002`",
        "| accurate | 25.0 % [10, 51] | 75.0 % [49, 90] |",
        "vllm serve trained --enable-auto-tool-choice",
        "not medical advice",
        "sql-agent-trainer",
    ):
        assert part in card
    assert str(tmp_path) not in card, "a card that is published names no folder of this machine"


def test_a_disk_that_is_full_leaves_no_half_of_a_model(tmp_path: Path, tiny_model_folder: Path) -> None:
    shutil.copytree(tiny_model_folder, tmp_path / "run/checkpoints/step-000005/model")
    (tmp_path / "run/checkpoints/step-000005/state.json").write_text("{}")
    (tmp_path / "disk").mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # less than the weights take
    try:
        result = run_command("bash", SCRIPT, tmp_path / "run", tmp_path / "disk/out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result.returncode == 2 and "Traceback" not in result.stderr
    assert f"could not write to {tmp_path}/disk/out" in result.stderr and "free space on that disk" in result.stderr
    assert not list((tmp_path / "disk").iterdir())


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
        "assert os.environ['VERL_USE_EXTERNAL_MODULES'] == 'sql_agent.training.verl.plugin', 'unknown attention'\n"
        "out = Path(sys.argv[sys.argv.index('--target_dir') + 1])\n"
        f"shutil.copytree({str(tiny_model_folder)!r}, out)\n"
        "config = json.loads((out / 'config.json').read_text()) | {'attn_implementation': 'torch_varlen'}\n"
        "(out / 'config.json').write_text(json.dumps(config))\n"
        "if 'ADAPTER' in os.environ: shutil.copytree(os.environ['ADAPTER'], out / 'lora_adapter')\n"
        "sys.exit(int(os.environ.get('FAIL', 0)))\n"
    )
    (tmp_path / "run" / "checkpoints" / "global_step_5" / "actor").mkdir(parents=True)
    command = ("bash", SCRIPT, tmp_path / "run", tmp_path / "out")
    return partial(run_command, *command, PYTHONPATH=str(tmp_path / "site"))


@pytest.mark.slow
def test_an_export_merges_where_our_attention_is_known_and_leaves_a_model_that_needs_it_not(
    export: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    failed = export(FAIL="1")
    assert failed.returncode == 2
    assert not (tmp_path / "out").exists(), "half an export is none, and the same command may be tried again"
    result = export()
    assert result.returncode == 0, result.stderr
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.slow
def test_what_adapters_learned_is_in_the_exported_weights(
    export: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, tiny_model_folder: Path
) -> None:
    import torch
    from peft import LoraConfig, get_peft_model  # takes seconds, which not every run of the tests should
    from transformers import AutoModelForCausalLM

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
