"""Finished rollouts to measure and to compare."""

from __future__ import annotations

from typing import Any

from sql_agent.schemas import (
    Drop,
    DropCause,
    Evidence,
    Outcome,
    QueryAnswer,
    QueryCall,
    Question,
    RewardParts,
    RolloutRecord,
    Usage,
)

REFUSAL = "The database does not hold this information."
EVIDENCE = Evidence(table="drugs_info", row_id=1, field="form", quote="capsule")


def call(count: int, *, status: Any = "ok") -> QueryCall:
    """A query that returned `count` rows of the database."""
    records = tuple(("capsule",) for _ in range(count))
    answer = QueryAnswer(status=status, columns=("form",), records=records, count=count, from_tables=count > 0)
    return QueryCall(sql="SELECT form FROM drugs_info", answer=answer, seconds=0.001)


def record(number: int, judge: float | None = 1.0, **changes: Any) -> RolloutRecord:
    """The rollout of question `number` with the judge's score; None for one that the judge failed on."""
    question = {"id": f"q{number}", "question": f"In which form does Drug {number} come?", "answer": "capsule"}
    question |= {name: changes.pop(name) for name in ("task_type", "lang", "answer", "evidence") if name in changes}
    values: dict[str, Any] = {
        "question": Question.model_validate(question),
        "answer": changes.pop("said", "capsule"),
        "outcome": Outcome.ANSWERED,
        "calls": (call(1),),
        "turns": 2,
        "usage": Usage(requests=2, prompt_tokens=100, completion_tokens=20),
        "seconds": 1.0,
    }
    if judge is None:
        values["dropped"] = Drop(cause=DropCause.JUDGE, detail="time-out")
    else:
        values["reward"] = RewardParts(rule=0.1, judge=judge, judge_name="facts")
    return RolloutRecord(**(values | changes))
