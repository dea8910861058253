"""Questions about the small database in the forms in which users keep theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PROSE: dict[str, Any] = {
    "qid": "p-1",
    "task_type": "what_treats",
    "question": "Which treatment does Disease 3 need?",
    "sql": ["SELECT treatment FROM disease WHERE id = 3"],
    "evidence": [{"source_table": "disease", "row_id": 3, "field": "treatment", "quote": "Drug 3; rest"}],
    "meta": {"created_at": "2026-11-22"},
    "ground_truth": "Disease 3 is treated with **Drug 3**.\n\nThe patient should also rest.",
}
SEARCH: dict[str, Any] = {
    "qid": "s-1",
    "question": "哪种药是片剂？",
    "sql": ["SELECT id, med_name FROM drugs_info WHERE form = '片剂'"],
    "evidence": [],
    "ground_truth": "数据库里剂型为片剂的药物是布洛芬。",
}
FACTS: dict[str, Any] = {
    "id": 3,
    "question": "Which form has Drug 2?",
    "answer": "syrup",
    "sql": "SELECT form FROM drugs_info WHERE id = 2",
}
NUMBER: dict[str, Any] = {"id": 4, "question": "How many drugs are syrups?", "answer": "50",
          "sql": "SELECT COUNT(*) FROM drugs_info WHERE form = 'syrup'"}  # fmt: skip
REFUSAL: dict[str, Any] = {
    "id": 5,
    "question": "What treats Disease 999?",
    "answer": "The database does not hold this information.",
    "sql": "SELECT treatment FROM disease WHERE disease_name = 'Disease 999'",
}


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
