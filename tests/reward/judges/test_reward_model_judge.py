"""The judge `reward-model` against a real HTTP server."""

from __future__ import annotations

import asyncio
from tempfile import mkdtemp
from typing import Any

import pytest

from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings_schema import JudgeSettings
from sql_agent.errors import ConfigError, JudgeError
from sql_agent.reward import Judge, JudgeCase
from sql_agent.reward.factory import make_judge
from tests.support.judge_server import Server
from tests.support.llm_judge import CASE


def reward_model(server: Server, url: str = "", **settings: Any) -> Judge:
    chosen = JudgeSettings(name="reward-model", **({"cache_dir": mkdtemp()} | settings))
    return make_judge(chosen, TeacherSettings(reward_model_url=url or f"{server.url}/score"))


def case(answer: str) -> JudgeCase:
    return CASE.model_copy(update={"answer": answer})


async def test_the_reward_model_is_shown_question_and_answer_and_its_scale_becomes_zero_to_one(server: Server) -> None:
    server.script = [503, {"score": 1.0}]
    asked = reward_model(server, reward_model_range=(-3.0, 5.0))
    verdict = await asked.grade(case("pain"))
    assert (verdict.score, verdict.criteria["raw"], verdict.usage.requests) == (0.5, 1.0, 2)
    assert server.requests[-1] == {"prompt": CASE.question.question, "response": "pain"}


@pytest.mark.parametrize("reply", [{"score": 1.5}, {"score": "1"}, {"score": True}, {}, 400])
async def test_a_reward_model_that_gives_no_score_on_its_scale_is_an_error(server: Server, reply: Any) -> None:
    server.default = reply
    with pytest.raises(JudgeError, match="reward model"):
        await reward_model(server).grade(case("pain"))


@pytest.mark.parametrize("reply", ["half a page", 400, {"score": "no"}])
async def test_a_reward_model_that_answered_is_not_asked_the_same_again(server: Server, reply: Any) -> None:
    server.script, server.default = [503], reply
    with pytest.raises(JudgeError) as caught:
        await reward_model(server).grade(case("pain"))
    assert caught.value.usage is not None
    assert caught.value.usage.requests == len(server.requests) == 2


def test_a_reward_model_outlives_its_event_loop(server: Server) -> None:
    server.default = {"score": 0.5}
    asked = reward_model(server)
    assert [asyncio.run(asked.grade(case(answer))).score for answer in ("pain", "fever")] == [0.5, 0.5]


async def test_a_key_in_the_address_is_used_and_never_shown(server: Server) -> None:
    server.default = {"score": 2}
    asked = reward_model(server, server.url.replace("//", "//user:s3cret@") + "/score?key=s3cret")
    with pytest.raises(JudgeError) as caught:
        await asked.grade(case("pain"))
    assert f"{server.url}/score failed" in str(caught.value) and f":{server.url}/score:" in asked.identity
    assert "s3cret" not in str(caught.value) + asked.identity


@pytest.mark.parametrize("url", ["http://[::1/score", "http://127.0.0.1:x/score", "localhost:8000/score"])
def test_a_wrong_url_is_refused_before_a_grading(server: Server, url: str) -> None:
    with pytest.raises(ConfigError, match="REWARD_MODEL_URL is not a URL"):
        reward_model(server, url)
