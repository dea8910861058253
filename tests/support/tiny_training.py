"""Arguments of a training run that takes seconds."""

from __future__ import annotations

from pathlib import Path

from sql_agent.schemas import Question
from tests.support.small_database import make_database


def tiny_training(folder: Path, model: Path) -> list[str]:
    """Return the arguments of a run in `folder` of the tiny random `model`, and write its files.

    The model answers nonsense, which must be scored, recorded and survived.
    """
    make_database(folder / "medical.db")
    for name in ("train", "val"):
        questions = [
            Question(id=f"{name}-{i}", question=f"{name} question {i}?", answer="oral", task_type="drug_field")
            for i in range(4)
        ]
        lines = "".join(q.model_dump_json() + "\n" for q in questions)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return [
        f"--model={model}",
        f"--train-file={folder / 'train.jsonl'}",
        f"--val-file={folder / 'val.jsonl'}",
        "--n-runners=2",
        f"database.path={folder / 'medical.db'}",
        f"runs_dir={folder / 'runs'}",
        f"local.cache_dir={folder / 'cache'}",
        "run_name=r",
        "local.max_context=8192",
        "sft.steps=0",
        "agent.max_tokens=8",
        "train.questions_per_step=2",
        "train.group_size=2",
        "train.save_every=1",
        "data.val_questions=2",
    ]
