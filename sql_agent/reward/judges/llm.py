"""Judge an answer with a language model and a rubric: a reason and a level for each criterion."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection

from sql_agent.reward.judges.base import JudgeCase, Verdict
from sql_agent.reward.judges.client import JudgeClient
from sql_agent.reward.judges.prompt_parts import (
    json_string,
    plain_text,
    prompt_text,
    quotes_of,
    reference_text,
    render,
    rows_text,
)
from sql_agent.reward.judges.rubric import Rubric
from sql_agent.schemas import Question

REFUSALS = ("The database does not hold this information.", "数据库中没有这一信息。")

_VERSION = 4  # raise it when a prompt, the repair text, the shown rows or the parsing of replies changes
_MAX_ROWS_CHARS = 4000
_REPAIR = "That was not one JSON object of the asked form. Reply with that object only, one level name per criterion."


class LlmJudge:
    """The judge "llm".

    Questions that the database cannot answer are graded by `refusal_rubric`, all others by `rubric`. The reference of
    such a question is one of `refusals`, or its task type says so.
    """

    name = "llm"

    def __init__(
        self, client: JudgeClient, rubric: Rubric, refusal_rubric: Rubric, *, refusals: Collection[str] = REFUSALS
    ) -> None:
        self._client = client
        self._rubric = rubric
        self._refusal_rubric = refusal_rubric
        self._refusals = frozenset(map(_bare, refusals))
        self._refusals_digest = hashlib.sha256(json.dumps(sorted(self._refusals)).encode()).hexdigest()[:16]

    @property
    def identity(self) -> str:
        rubrics = f"{self._rubric.digest}:{self._refusal_rubric.digest}:{self._refusals_digest}"
        return f"llm/{_VERSION}:{self._client.identity}:{_MAX_ROWS_CHARS}:{rubrics}"

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade one case. Raises JudgeError, with the last reply, when no usable grades came."""
        rubric = self.rubric_for(case.question)
        reply, usage = await self._client.ask(self.prompt(case), rubric.reply_model, repair=_REPAIR)
        grades: dict[str, dict[str, str]] = reply.model_dump()
        score, criteria = rubric.score({name: grade["level"] for name, grade in grades.items()})
        reason = "; ".join(f"{name}: {grade['reason']}" for name, grade in grades.items() if grade["reason"])
        return Verdict(score=score, criteria=criteria, reason=reason, usage=usage)

    def rubric_for(self, question: Question) -> Rubric:
        """Return the rubric that answers to `question` are graded by."""
        refused = question.task_type == "unanswerable" or _bare(question.answer) in self._refusals
        return self._refusal_rubric if refused else self._rubric

    def prompt(self, case: JudgeCase) -> str:
        """Return the prompt, with the answer without Markdown, so that headers and bullets earn nothing."""
        question, rubric = case.question, self.rubric_for(case.question)
        example = {c.name: {"reason": "…", "level": c.levels[0].name} for c in rubric.criterion}
        values = {
            "criteria": rubric.as_text(question.lang),
            "form": json.dumps(example, ensure_ascii=False),
            "question": json_string(question.question),
            "reference": reference_text(question),
            "rows": rows_text(case.calls, quotes_of(question), max_chars=_MAX_ROWS_CHARS),
            "answer": plain_text(case.answer),
        }
        return render(prompt_text("judge", question.lang), values)


def _bare(sentence: str) -> str:
    return sentence.strip().rstrip(".。").casefold()
