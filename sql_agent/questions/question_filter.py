"""Have a teacher model keep or drop a question by a rubric, with a reason."""

from __future__ import annotations

import json

from sql_agent.questions.teacher import Entry, digest_of, prompt_file
from sql_agent.reward.judges.client import JudgeClient
from sql_agent.reward.judges.prompt_parts import render
from sql_agent.schemas import Question, Record, Usage

DEFAULT_RUBRIC = "filter_rubric.txt"
_REPAIR = 'That is not a JSON object of the form {"reason": "…", "keep": true}. Reply with it and nothing else.'
_SHOWN = ("question", "answer", "sql", "evidence", "task_type")  # of a question, to the model


# Its JSON schema, docstring included, is part of the request.
class Choice(Record):
    """Holds the model's reply."""

    reason: str
    keep: bool


class Decision(Entry):
    """One line of the progress file: the question's text, whether it is kept, and why."""

    question: str
    keep: bool
    reason: str


async def decide(question: Question, client: JudgeClient, rubric: str) -> tuple[Decision, Usage]:
    """Return the teacher's decision by `rubric`, a text, and its cost. Raises JudgeError."""
    choice, usage = await client.ask(_prompt(question, rubric), Choice, repair=_REPAIR)
    made = {"digest": decision_digest(question, client, rubric), "question": question.question}
    return Decision(id=question.id, **made, keep=choice.keep, reason=choice.reason), usage


def decision_digest(question: Question, client: JudgeClient, rubric: str) -> str:
    """Return what distinguishes this decision from one on another question, by another rubric or model."""
    return digest_of(client.model, question, _prompt(question, rubric))


def _prompt(question: Question, rubric: str) -> str:
    shown = {name: value for name, value in question.model_dump(mode="json").items() if name in _SHOWN and value}
    values = {"rubric": rubric.strip(), "entry": json.dumps(shown, ensure_ascii=False)}
    return render(prompt_file("filter.txt"), values)
