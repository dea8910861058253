"""The folder of a small finished run, with all that its report can show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sql_agent.config.settings import load_settings, public_dump
from sql_agent.runs.run_folder import recorded_session

ATTACK = "<img src=x onerror=\"document.title='owned'\"></script>"
FORM = {
    "id": "form",
    "question": f"Which form has Aspirin {ATTACK}?",
    "answer": "tablet; syrup",
    "lang": "en",
    "evidence": [{"table": "drugs_info", "row_id": 4, "field": "form", "quote": "tablet"}],
    "task_type": "drug_field",
}
DOSE = {"id": "dose", "question": "阿司匹林的剂量是多少？", "answer": "100 毫克", "lang": "zh", "task_type": "keyword"}
VALIDATION = {"mode": "val", "val_set": "template", "group": "dose", "advantage": None}
SQL = "SELECT * FROM drugs_info WHERE name = 'x'"


def make_run(folder: Path, gain: float = 0.5) -> Path:
    """Write a run of two steps, 9 rollouts and two validations, whose accuracy rises by `gain`."""
    folder.mkdir()
    config = public_dump(load_settings([f"train.lr={gain / 1e5}", "train.steps=2", "judge.name=facts"]))
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "prompt.txt").write_text("You answer questions.\n", encoding="utf-8")
    write_lines(folder / "sft.jsonl", [{"step": step, "steps": 2, "loss": 1 / step} for step in (1, 2)])
    write_lines(folder / "metrics.jsonl", [step_line(number) for number in (1, 2)])
    validations = [{"step": 0, **_validated(0.25)}, {"step": 2, **_validated(0.25 + gain)}]
    write_lines(folder / "validation.jsonl", validations)
    write_lines(
        folder / "rollouts.jsonl",
        [
            rollout_line(0, 0.0, DOSE, **VALIDATION),
            *(rollout_line(step, judge) for step in (1, 2) for judge in (1.0, 0.25, None)),
            rollout_line(2, 2 * gain, DOSE, **VALIDATION),
            rollout_line(2, None, record=None),
        ],
    )
    with recorded_session(folder, "data/medical.db"):
        pass
    return folder


def write_lines(path: Path, objects: list[dict[str, Any]]) -> None:
    """Append `objects` to a JSONL file."""
    with path.open("a", encoding="utf-8") as sink:
        sink.writelines(json.dumps(o, ensure_ascii=False) + "\n" for o in objects)


def step_line(step: int) -> dict[str, Any]:
    """A line of metrics.jsonl."""
    reward = {"reward/mean": 0.4, "reward/judge": 0.3, "reward/rule": 0.1, "agent/turns": 2}
    return {"step": step, "rollouts/enqueued": 4, "rollouts/kept": 3, "timing/rollout_s": 20, **reward}


def rollout_line(step: int, judge: float | None, question: dict[str, Any] = FORM, **changes: Any) -> dict[str, Any]:
    """A line of rollouts.jsonl; `judge` is None for a rollout that the judge failed on."""
    dropped = {"cause": "judge", "detail": "time-out"} if judge is None else None
    reward = {
        "rule": 0.1,
        "judge": judge,
        "judge_name": "llm",
        "criteria": {"facts": judge, "form": 0.5},
        "reason": "facts: says tablet; form: too long",
    }
    record = {
        "question": question,
        "answer": f"Aspirin comes as a Tablet {ATTACK}",
        "outcome": "answered",
        "calls": [_failed_query("SELCT form"), _query(SQL, ["Aspirin", "tablet"], [ATTACK, None])],
        "replies": [_reply("let me see", "{broken")],
        "turns": 3,
        "reward": None if dropped else reward,
        "dropped": dropped,
        "usage": {"prompt_tokens": 500, "completion_tokens": 21},
        "seconds": 1.5,
    }
    about = {"step": step, "mode": "train", "val_set": None, "rollout_id": f"ro-{step}-{judge}", "group": f"{step}-0"}
    counts = {"advantage": None if judge is None else judge - 0.5, "triplets": 3, "sequences": 1}
    return {**about, **counts, "dropped": dropped, "record": record, **changes}


def _query(sql: str, *rows: list[Any]) -> dict[str, Any]:
    answer = {"status": "ok", "columns": ["name", "form"], "records": rows, "count": len(rows)}
    return {"sql": sql, "answer": answer, "seconds": 0.0012}


def _failed_query(sql: str) -> dict[str, Any]:
    error = {"kind": "syntax", "message": "near SELCT", "hint": "write SELECT first"}
    return {"sql": sql, "answer": {"status": "error", "error": error}, "seconds": 0.0012}


def _reply(text: str, arguments: str) -> dict[str, Any]:
    call = {"name": "query_database_by_sql", "arguments": arguments}
    return {"text": text, "tool_calls": [call], "prompt_tokens": 500, "completion_tokens": 21, "seconds": 0.25}


def _validated(share: float) -> dict[str, Any]:
    figures = {"questions": 14, "accurate": share, "reward/mean": share}
    return {f"val/{name}/{key}": value for name in ("template", "natural") for key, value in figures.items()}
