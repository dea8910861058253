"""The final answer that the supervised warm-up teaches for a question."""

from __future__ import annotations

from sql_agent.records import Question


def demonstration(question: Question) -> str:
    """The reference facts as they stand: the shortest text that holds them all, which a small model can learn."""
    return question.answer
