"""What the judge `ranking` is shown."""

from __future__ import annotations

import json

from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings_schema import JudgeSettings
from sql_agent.reward import Verdict
from sql_agent.reward.factory import make_judge
from sql_agent.reward.judges.ranking_judge import RankingJudge
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.judge_server import Server
from tests.support.llm_judge import CALL, CASE


def ranking_by(model: str) -> RankingJudge:
    judge = make_judge(JudgeSettings(name="ranking"), TeacherSettings(model=model), words=TASK.words)
    assert isinstance(judge, RankingJudge)
    return judge


def test_another_model_is_another_judge() -> None:
    assert ranking_by("m").identity != ranking_by("other").identity


async def test_a_ranking_without_each_answer_once_is_asked_for_again(server: Server) -> None:
    def ranking(*answers: int) -> str:
        return json.dumps({"ranking": [{"answer": n, "reason": "so", "score": 0.5} for n in answers]})

    server.script, server.default = [ranking(1), ranking(1, 1), ranking(1, 2, 3)], ranking(2, 1)
    cases = [CASE.model_copy(update={"answer": answer}) for answer in ("pain", "fever")]
    judge = make_judge(
        JudgeSettings(name="ranking"), TeacherSettings(model="m", base_url=f"{server.url}/v1"), words=TASK.words
    )
    assert isinstance(judge, RankingJudge)
    verdicts = await judge.rank(cases, [Verdict(score=0.0)] * 2)
    assert [verdict.score for verdict in verdicts] == [0.5, 0.5]
    assert verdicts[0].usage.requests == len(server.requests) == 4


def test_what_the_agents_wrote_comes_after_all_that_is_the_same() -> None:
    judge = ranking_by("m")
    prompts = [
        judge.prompt([CASE.model_copy(update={"answer": answer}) for answer in answers])
        for answers in (("pain", "fever"), ("both {question}", "none", "pain"))
    ]
    first, second = (prompt.split("\n<<<")[0] for prompt in prompts)
    assert first == second
    assert json.dumps(CASE.question.answer) in first
    assert CALL.sql not in first
    assert CALL.sql in prompts[0]
    assert "both {question}" in prompts[1]
