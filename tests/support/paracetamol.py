"""One question about paracetamol with its query, judges as a run makes them, and one that reads the answer."""

from __future__ import annotations

from tempfile import mkdtemp
from typing import Any

from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings_schema import JudgeSettings
from sql_agent.errors import JudgeError
from sql_agent.reward import Judge, JudgeCase, Verdict
from sql_agent.reward.factory import make_judge
from sql_agent.schemas import QueryAnswer, QueryCall, QueryFailure, Question, Usage
from tests.support.judge_server import Server

ROWS = QueryAnswer(status="ok", columns=("uses",), records=(("pain; fever",),), count=1, from_tables=True)
CALL = QueryCall(sql="SELECT uses FROM drugs_info WHERE med_name = 'Paracetamol'", answer=ROWS, seconds=0.0)
FAILED = QueryCall(
    sql="SELECT x", answer=QueryAnswer(status="error", error=QueryFailure(kind="sql", message="no")), seconds=0.0
)
QUESTION = Question(
    id="1", question="What is Paracetamol for?", answer="pain; fever", sql=CALL.sql, task_type="drug_field"
)


def case(answer: str, *calls: QueryCall) -> JudgeCase:
    return JudgeCase(question=QUESTION, answer=answer, calls=calls or (CALL,))


def judge(server: Server | None = None, **settings: Any) -> Judge:
    url = server.url if server else None
    teacher = TeacherSettings(model="m", base_url=f"{url}/v1", reward_model_url=f"{url}/score" if url else None)
    return make_judge(JudgeSettings(**({"cache_dir": mkdtemp()} | settings)), teacher)


class Fixed:
    """A judge that gives the number in the answer, and fails on one without."""

    def __init__(self, name: str, factor: float = 1.0) -> None:
        self.name = name
        self.identity = f"{name}:{factor}"
        self._factor = factor

    async def grade(self, case: JudgeCase) -> Verdict:
        try:
            score = float(case.answer) * self._factor
        except ValueError:
            raise JudgeError(f"{case.answer!r} is no number", usage=Usage(requests=1)) from None
        return Verdict(score=score, criteria={"own": score}, reason="read", usage=Usage(requests=1))
