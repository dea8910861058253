"""The benchmark of learning on two cores compares the same questions, and says what chance would do."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "laptop_learning.py"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("laptop_learning", BENCHMARK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclass looks for it
    spec.loader.exec_module(module)
    return module


BENCH = loaded()


def rollout(step: int, question: str, judge: float, mode: str = "val") -> dict[str, Any]:
    reward = {"rule": 0.1, "judge": judge, "judge_name": "facts"}
    record = {"question": {"id": question, "question": "?", "answer": "a"}, "answer": "a", "outcome": "answered"}
    return {"step": step, "mode": mode, "dropped": None, "record": record | {"reward": reward}}


def test_the_first_and_the_last_validation_are_compared_question_by_question(tmp_path: Path) -> None:
    lines = [
        rollout(0, "a", 0.0), rollout(0, "b", 1.0), rollout(0, "c", 1.0), rollout(0, "d", 0.5),
        rollout(3, "a", 1.0, mode="train"), rollout(10, "a", 0.0),
        rollout(20, "a", 1.0), rollout(20, "b", 1.0), rollout(20, "c", 0.7), rollout(20, "d", 0.8),
    ]  # fmt: skip
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    before, after = BENCH.accurate_by_question(tmp_path)
    assert before == {"a": False, "b": True, "c": True, "d": False}
    assert BENCH.flips(before, after) == (2, 1)
