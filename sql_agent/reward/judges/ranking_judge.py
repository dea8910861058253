"""Rank all answers of a group in one call, as RULER does (OpenPipe, "RULER: Relative Universal LLM-Elicited Rewards").

GRPO compares the rollouts of a group with each other, and a model compares two answers more reliably than it scores
one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from sql_agent.reward import Judge, JudgeCase, Verdict
from sql_agent.reward.judges.client import JudgeClient
from sql_agent.reward.judges.llm_judge import LENIENT
from sql_agent.reward.judges.panel_cache_prefilter import prefilter
from sql_agent.reward.judges.prompt_parts import json_string, plain_text, quotes_of, reference_text, render, rows_text
from sql_agent.schemas import Usage
from sql_agent.system.files import prompt_file

_VERSION = 3  # raise it when a prompt, the repair text, the shown rows or the parsing of replies changes
_MAX_ROWS_CHARS = 800  # maximum for one answer; eight answers share one prompt
_REPAIR = "That was not one JSON object with every answer exactly once. Reply with that object only."


# The JSON schemas of the next two classes, docstrings included, are part of the requests.
class RankedAnswer(BaseModel):
    """What the model says of one answer."""

    model_config = LENIENT

    answer: int
    reason: str
    score: Annotated[float, Field(ge=0.0, le=1.0, strict=True, allow_inf_nan=False)]


class Ranking(BaseModel):
    """What the model must reply."""

    model_config = LENIENT

    ranking: list[RankedAnswer]


class RankingJudge:
    """The judge "ranking". The judge `absolute` grades single answers; its score becomes the criterion "absolute"."""

    name = "ranking"

    def __init__(self, client: JudgeClient, absolute: Judge) -> None:
        self._client = client
        self._absolute = absolute

    @property
    def identity(self) -> str:
        return f"ranking/{_VERSION}:{self._client.identity}:{_MAX_ROWS_CHARS}+{self._absolute.identity}"

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade one case with `absolute`, as in validation, where no group is compared."""
        return await self._absolute.grade(case)

    async def rank(self, cases: Sequence[JudgeCase], own: Sequence[Verdict]) -> list[Verdict]:
        """Return verdicts on the answers to one question, relative to each other; `own` has the verdicts of `grade`.

        An answer that the prefilter stops is not ranked and keeps its score in `own`. Equal answers with equal rows are
        ranked once. With fewer than two different answers, all keep their scores in `own`. The first verdict has the
        usage of the ranking request. Raises JudgeError.
        """
        # One case for each pair of answer and rows, in random order, because models favour some places in a list.
        by_key = {_key(case): case for case in cases if prefilter(case) is None}
        keys = sorted(by_key)
        random.Random("".join(keys)).shuffle(keys)
        shown = [by_key[key] for key in keys]
        ranked_answers, usage = (await self._ask(shown)) if len(shown) > 1 else ({}, Usage())
        verdicts: list[Verdict] = []
        for case, alone in zip(cases, own, strict=True):
            ranked = ranked_answers.get(_key(case))
            score, reason = (ranked.score, ranked.reason) if ranked else (alone.score, alone.reason)
            criteria = alone.criteria | {"absolute": alone.score}
            spent = Usage() if verdicts else usage
            verdicts.append(Verdict(score=score, criteria=criteria, reason=reason, usage=spent))
        return verdicts

    async def _ask(self, shown: list[JudgeCase]) -> tuple[dict[str, RankedAnswer], Usage]:
        numbers = list(range(1, len(shown) + 1))
        ranking, usage = await self._client.ask(
            self.prompt(shown),
            Ranking,
            repair=_REPAIR,
            accepts=lambda ranking: sorted(ranked.answer for ranked in ranking.ranking) == numbers,
        )
        return {_key(shown[ranked.answer - 1]): ranked for ranked in ranking.ranking}, usage

    def prompt(self, shown: Sequence[JudgeCase]) -> str:
        """Return the prompt, in which each answer follows its rows and has a number from 1."""
        question = shown[0].question
        values = {"question": json_string(question.question), "reference": reference_text(question)}
        blocks = []
        for number, case in enumerate(shown, 1):
            values |= {
                f"rows_{number}": rows_text(case.calls, quotes_of(question), max_chars=_MAX_ROWS_CHARS),
                f"answer_{number}": plain_text(case.answer),
            }
            blocks.append(
                f"{{fence}} statements and rows behind answer {number}\n{{rows_{number}}}\n{{fence_end}}\n"
                f"{{fence}} answer {number}\n{{answer_{number}}}\n{{fence_end}}"
            )
        form = {"ranking": [{"answer": 1, "reason": "…", "score": 0.0}]}
        template = prompt_file(__file__, f"ranking.{question.lang}.txt")
        # Fill in the template's own parts first: `render` must be the only step that sees data.
        template = template.replace("{answers}", "\n".join(blocks)).replace("{form}", json.dumps(form))
        return render(template, values)


def _key(case: JudgeCase) -> str:
    return json.dumps(
        [plain_text(case.answer), rows_text(case.calls, quotes_of(case.question), max_chars=_MAX_ROWS_CHARS)]
    )
