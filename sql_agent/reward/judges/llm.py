"""Judge an answer with a language model and a rubric: a reason and a level for each criterion."""

from __future__ import annotations

import json

from sql_agent.reward.judges.base import JudgeCase, Verdict
from sql_agent.reward.judges.client import JudgeClient, read_reply
from sql_agent.reward.judges.prompt_template import prompt_text, render, rows_text
from sql_agent.reward.judges.rubric import Rubric
from sql_agent.reward.judges.text import plain_text

_VERSION = 2  # raise it with every change of a prompt, the repair text or what is shown of the rows
_MAX_ROWS_CHARS = 4000
_REPAIR = "That was not one JSON object of the asked form. Reply with that object only, one level name per criterion."

Grades = dict[str, dict[str, str]]


class LlmJudge:
    """The judge "llm"."""

    name = "llm"

    def __init__(self, client: JudgeClient, rubric: Rubric) -> None:
        self._client = client
        self._rubric = rubric
        self._reply = rubric.reply_model()

    @property
    def identity(self) -> str:
        return f"llm/{_VERSION}:{self._client.model}:{self._rubric.digest}"

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade one case. Raises JudgeError when no usable grades came, saying what came instead."""
        grades, usage = await self._client.ask(
            self.prompt(case), self._reply.model_json_schema(), self.parse, repair=_REPAIR
        )
        score, criteria = self._rubric.score({name: grade["level"] for name, grade in grades.items()})
        reason = "; ".join(f"{name}: {grade['reason']}" for name, grade in grades.items() if grade["reason"])
        return Verdict(score=score, criteria=criteria, reason=reason, usage=usage)

    def prompt(self, case: JudgeCase) -> str:
        """What the model is shown. Markdown is gone from the answer, so that headers and bullets earn nothing."""
        lang = case.question.lang
        example = {c.name: {"reason": "…", "level": c.levels[0].name} for c in self._rubric.criterion}
        values = {
            "criteria": self._rubric.as_text(lang),
            "form": json.dumps(example, ensure_ascii=False),
            "question": case.question.question,
            "reference": case.question.answer,
            "rows": rows_text(case.calls, max_chars=_MAX_ROWS_CHARS),
            "answer": plain_text(case.answer),
        }
        return render(prompt_text("judge", lang), values)

    def parse(self, text: str) -> Grades | None:
        """The grades in a reply, perhaps with prose around the JSON object; None when they are not all there."""
        reply = read_reply(text, self._reply)
        return None if reply is None else reply.model_dump()
