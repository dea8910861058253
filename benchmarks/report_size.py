"""Measure how large the report of a long run is, and how fast it opens: python benchmarks/report_size.py [ROLLOUTS]

It makes a run of synthetic rollouts (20,000 unless told otherwise), writes its report, and opens that in headless
Chromium: the time until the page is drawn, until a rollout is shown, and for a search of all text.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sql_agent.config.settings import load_settings, public_dump
from sql_agent.runs.report import write_report
from tests.support.browser import open_browser

_GROUP = 8
_QUESTIONS = 32  # of a step
_WORDS = (
    "oral", "tablet", "capsule", "dose", "morning", "evening", "weekly", "reduces", "pain", "fever", "cough", "allergy",
    "child", "adult", "renal", "hepatic", "monitor", "avoid", "alcohol", "injection", "cream", "drops", "acute",
    "chronic", "severe", "mild", "rest", "fluids",
)  # fmt: skip


def write_run(folder: Path, rollouts: int) -> None:
    """Write a run of so many rollouts into `folder`, with texts as long as those of real runs."""
    chance = random.Random(0)
    config = public_dump(load_settings(["train.steps=100", "model=Qwen/Qwen2.5-0.5B-Instruct"]))
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    steps = max(1, rollouts // (_GROUP * _QUESTIONS))
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as metrics:
        for step in range(1, steps + 1):
            metrics.write(json.dumps({"step": step, **_metrics(step / steps, chance)}) + "\n")
    with (folder / "validation.jsonl").open("w", encoding="utf-8") as validation:
        for step in range(0, steps + 1, 10):
            validation.write(json.dumps({"step": step, **_validation(step / steps)}) + "\n")
    with (folder / "rollouts.jsonl").open("w", encoding="utf-8") as sink:
        for line in _rollouts(rollouts, chance):
            sink.write(json.dumps(line, ensure_ascii=False) + "\n")


def _metrics(part: float, chance: random.Random) -> dict[str, float]:
    judge = 0.3 + 0.5 * part + chance.uniform(-0.05, 0.05)
    return {
        "reward/mean": 0.09 + judge, "reward/judge": judge, "reward/rule": 0.09, "groups/informative": 0.8 - 0.3 * part,
        "agent/turns": 2.2 + part, "agent/tool_calls": 1.2 + part, "agent/sql_ok": 0.7 + 0.25 * part,
        "agent/completion_tokens": 80 + 40 * part, "policy/entropy": 0.9 - 0.6 * part,
        "rollouts/enqueued": 256, "rollouts/finished": 256, "rollouts/with_triplets": 255, "rollouts/kept": 254,
        "rollouts/split": 0, "judge/facts": judge, "update/grad_norm": chance.uniform(0.5, 2),
        "timing/rollout_s": chance.uniform(20, 30), "timing/update_s": chance.uniform(10, 14),
    }  # fmt: skip


def _validation(part: float) -> dict[str, float]:
    sets = {"template": 0.4 + 0.5 * part, "natural": 0.3 + 0.4 * part}
    return {
        f"val/{name}/{key}": value
        for name, share in sets.items()
        for key, value in {"questions": 100, "accurate": share, "reward/mean": share + 0.1}.items()
    }


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(_WORDS) for _ in range(words)) + f" {chance.randrange(10**6)}"


def _rollouts(count: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    questions = [_question(number, chance) for number in range(1000)]
    for number in range(count):
        group = number // _GROUP
        yield {
            "step": 1 + group // _QUESTIONS,
            "mode": "train",
            "val_set": None,
            "rollout_id": f"ro-{chance.getrandbits(64):016x}",
            "group": f"{1 + group // _QUESTIONS}-{group % _QUESTIONS}",
            "advantage": chance.gauss(0, 1),
            "triplets": 3,
            "sequences": 1,
            "dropped": None,
            "record": _record(questions[group * 7919 % len(questions)], chance),
        }


def _question(number: int, chance: random.Random) -> dict[str, Any]:
    return {
        "id": f"q{number}",
        "question": f"What is known of {_text(chance, 8)}?",
        "answer": f"{_text(chance, 2)}; {_text(chance, 2)}",
        "lang": "en",
        "sql": "SELECT form FROM drugs_info WHERE med_name = 'A'",
        "evidence": [],
        "task_type": f"kind_{number % 9}",
    }


def _record(question: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    calls = [_call(chance) for _ in range(chance.randint(1, 3))]
    judge = round(chance.random(), 3)
    return {
        "question": question,
        "answer": _text(chance, 15),
        "outcome": "answered",
        "calls": calls,
        "replies": [_reply(call["sql"], chance) for call in calls],
        "turns": len(calls) + 1,
        "dropped": None,
        "seconds": chance.uniform(2, 9),
        "reward": {
            "rule": 0.1,
            "judge": judge,
            "judge_name": "facts",
            "criteria": {"facts": judge, "read": 1.0},
            "reason": _text(chance, 10),
        },
        "usage": {"requests": 3, "prompt_tokens": 2100, "completion_tokens": 180, "cache_hits": 0, "cost_usd": None},
    }


def _call(chance: random.Random) -> dict[str, Any]:
    rows = [[_text(chance, 2), _text(chance, 25)] for _ in range(5)]
    return {
        "sql": f"SELECT med_name, indications FROM drugs_info WHERE med_name LIKE '%{_text(chance, 2)}%'",
        "answer": {"status": "ok", "columns": ["med_name", "indications"], "records": rows, "count": 5},
        "seconds": chance.uniform(0.001, 0.01),
    }


def _reply(sql: str, chance: random.Random) -> dict[str, Any]:
    return {
        "text": _text(chance, 12),
        "tool_calls": [{"name": "query_database_by_sql", "arguments": json.dumps({"sql": sql})}],
        "prompt_tokens": 700,
        "completion_tokens": 60,
        "finish_reason": "tool_calls",
        "seconds": 1.5,
    }


def main() -> None:
    rollouts = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "synthetic"
        run.mkdir()
        write_run(run, rollouts)
        started = time.monotonic()
        page = write_report(run)
        seconds = time.monotonic() - started
        print(f"{rollouts:,} rollouts: rollouts.jsonl {_size(run / 'rollouts.jsonl')}")
        print(f"report.html {_size(page)}, written in {seconds:.1f} s")
        with open_browser(Path(name) / "chromium") as tab:
            for attempt in range(1, 4):
                tab.open(page.as_uri())
                print(f"open {attempt}: drawn after {tab.value('document.body.dataset.loaded')} ms")
            tab.click("#show-rollouts")
            print(f"a rollout of the middle: {tab.value(_timed(f'open(report.rows[{rollouts // 2}])')):.0f} ms")
            search = "searchText(report, report.rows, (rows, share) => { if (share === 1) done() })"
            searched = f"new Promise(done => {{ setState({{text: 'hepatic 4242'}}); {search} }})"
            print(f"a search of all text: {tab.value(_timed(searched)):.0f} ms")
            assert tab.errors == [], tab.errors


def _timed(promise: str) -> str:
    return f"(async () => {{ const from = performance.now(); await {promise}; return performance.now() - from }})()"


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


if __name__ == "__main__":
    main()
