"""In the workflow check-rewrite only the calls of the trained roles reach the trainer, with the reward of the whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sql_agent.training.serving.tokenizer import load_tokenizer
from tests.support.fake_verl import AGAIN, CHECKED, REWRITTEN, WRITTEN, assert_sampled_ids_have_their_log_probabilities
from tests.support.orchard import write_spider_folder
from tests.support.processes import finish, lines, start

SCRIPT = Path(__file__).parents[2] / "support" / "train_with_fake_verl.py"


def sampled_texts(run: Path, model: Path) -> list[list[str]]:
    """What the policy is trained to write, by sequence, in the first rollout of the first step."""
    tokenizer = load_tokenizer(str(model))
    rollout = json.loads((run / "sequences-1.json").read_text())[0]
    texts = []
    for part in rollout["sequences"]:
        sampled = [i for i, kept in zip(part["response_ids"], part["response_mask"], strict=True) if kept]
        texts.append([text for text in tokenizer.decode(sampled).split("<|im_end|>") if text])
    return texts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "sequences"),
    [
        ([], [[WRITTEN, REWRITTEN, AGAIN]]),
        (["--train-roles=.*", "--transition-level"], [[WRITTEN], [CHECKED], [REWRITTEN], [CHECKED], [AGAIN]]),
    ],
)
def test_the_trained_roles_are_what_the_trainer_gets(
    flags: list[str], sequences: list[list[str]], tmp_path: Path, tiny_model_folder: Path
) -> None:
    data = write_spider_folder(tmp_path / "data")
    process = start(
        [
            "--backend=verl", f"--model={tiny_model_folder}", "--task=spider", f"--data-dir={data}", *flags,
            "--n-runners=1", f"runs_dir={tmp_path / 'runs'}", "run_name=r", f"local.cache_dir={tmp_path / 'cache'}",
            "sft.steps=0", "verl.config.sql_agent.endpoints=1", "verl.gpu_memory_gb=24",
            "runner.n_proxies=1", "train.steps=1",
            "train.questions_per_step=1", "train.group_size=2", "data.val_questions=2", "spider.val_databases=1",
        ],
        script=SCRIPT,
    )  # fmt: skip
    output = finish(process)
    assert process.returncode == 0, output
    run = tmp_path / "runs" / "r"
    assert sampled_texts(run, tiny_model_folder) == sequences
    (step,) = lines(run / "metrics.jsonl")
    for rollout in json.loads((run / "sequences-1.json").read_text()):
        assert rollout["reward"] == pytest.approx(step["reward/mean"])
        for part in rollout["sequences"]:
            assert_sampled_ids_have_their_log_probabilities(part)
            assert flags == [] or all(part["response_mask"]), "a sequence of its own for each turn, and nothing else"
    assert step["rollouts/kept"] == step["rollouts/with_triplets"] == 2, "all calls came back, trained or not"
    assert (step["role/write"], step["role/check"], step["role/rewrite"]) == (1, 2, 2)
    assert step["agent/turns"] == 5 and step["agent/tool_calls"] == 3
    record = lines(run / "rollouts.jsonl")[0]["record"]
    assert [reply["role"] for reply in record["replies"]] == ["write", "check", "rewrite", "check", "rewrite"]
    assert record["answer"] == "SELECT 3"
    assert "Held out of training" in output
