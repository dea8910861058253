"""The judge `llm` at a test server, one case for it, and replies that it understands."""

from __future__ import annotations

import json
from tempfile import mkdtemp
from typing import Any

import pytest
from pydantic import SecretStr

from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings_schema import JudgeSettings
from sql_agent.reward import Judge, JudgeCase
from sql_agent.reward.factory import make_judge
from sql_agent.reward.judges.llm_judge import Rubric, shipped_rubric
from sql_agent.schemas import QueryAnswer, QueryCall, Question
from tests.support.judge_server import KEY, Server

ATTEMPTS = "sql_agent.reward.judges.endpoint.ATTEMPTS"
ROWS = QueryAnswer(status="ok", columns=("uses",), records=(("pain; fever",),), count=1, from_tables=True)
CALL = QueryCall(sql="SELECT uses FROM drugs_info", answer=ROWS, seconds=0.0)
CASE = JudgeCase(
    question=Question(id="1", question="What for?", answer="pain; fever"), answer="pain {question}", calls=(CALL,)
)


def grades(rubric: Rubric | None = None, /, **levels: str) -> str:
    """Return a whole reply: the best level of every criterion, but for `levels`."""
    best = {c.name: c.levels[0].name for c in (rubric or shipped_rubric("default")).criterion}
    return json.dumps({name: {"reason": "seen", "level": level} for name, level in (best | levels).items()})


GOOD = grades(completeness="most")
GOOD_SCORE = pytest.approx(0.7)  # not above the completeness; without that cap 0.925


def judge_at(server: Server, *, model: str = "m", **settings: Any) -> Judge:
    """Return the judge with a cache that no other one reads."""
    teacher = TeacherSettings(model=model, base_url=f"{server.url}/v1", api_key=SecretStr(KEY))
    return make_judge(JudgeSettings(name="llm", **({"cache_dir": mkdtemp()} | settings)), teacher)
