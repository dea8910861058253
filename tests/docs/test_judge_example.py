"""The judge `facts` pays what the example of docs/judge.md says."""

from __future__ import annotations

import asyncio
import re

import pytest

from sql_agent.reward import JudgeCase
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.schemas import Evidence, QueryAnswer, QueryCall, Question
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.processes import ROOT

ROW = re.compile(r'^\| "(?P<answer>[^"]+)"(?P<note>[^|]*)\| (?P<score>[\d.]+) \|', re.MULTILINE)
EXAMPLE = [match.groups() for match in ROW.finditer((ROOT / "docs" / "judge.md").read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("answer", "note", "score"), EXAMPLE)
def test_facts_pays_what_the_page_says(answer: str, note: str, score: str) -> None:
    form = Evidence(table="drugs_info", row_id="1", field="form", quote="tablet; syrup")
    question = Question(id="q", question="Which form has Aspirin?", answer="tablet; syrup", lang="en", evidence=(form,))
    rows = QueryAnswer(
        status="ok", columns=("form", "effects"), records=(("tablet; syrup", "headache"),), count=1, from_tables=True
    )
    calls = (QueryCall(sql="SELECT form, effects FROM drugs_info", answer=rows, seconds=0.0),)
    read = () if "did not read" in note else (form,)
    case = JudgeCase(question=question, answer=answer, calls=calls, evidence_read=read, row_names=(("Aspirin",),))
    verdict = asyncio.run(FactsJudge(TASK.words).grade(case))
    assert verdict.score == pytest.approx(float(score))


def test_the_page_has_an_example() -> None:
    assert len(EXAMPLE) == 9
