"""`correct` agrees with two people about 240 answers of trained and untrained models."""

from __future__ import annotations

import json
from importlib.resources import files

from sql_agent.reward import JudgeCase
from sql_agent.reward.judges.acceptance import is_correct
from sql_agent.reward.judges.items import Reader
from sql_agent.reward.judges.reference_parser import Cells
from sql_agent.schemas import QueryCall, Question
from sql_agent.tasks.medical.medical_task import TASK

LINES = files("sql_agent.judge_eval").joinpath("labelled", "accepted.jsonl").read_text(encoding="utf-8").splitlines()


def test_correct_agrees_with_people_in_95_of_100_answers() -> None:
    agreed, differing = 0, []
    for line in map(json.loads, LINES):
        question = Question.model_validate(line["question"])
        case = JudgeCase(
            question=question,
            answer=line["answer"],
            calls=tuple(map(QueryCall.model_validate, line["calls"])),
            evidence_read=question.evidence or None,  # the readers saw no queries
        )
        first, second = line["accepted"]
        if first is not second:
            continue
        reader = Reader(TASK.words[question.lang])
        found = is_correct(case, reader, Cells(case, reader))
        agreed += found is first
        differing += [] if found is first else [question.id]
    assert agreed >= 200
    assert agreed / (agreed + len(differing)) >= 0.95, differing
    assert len(LINES) == 240
