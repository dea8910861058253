"""What the medical task tells the model, and what it measures."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from sql_agent.data.medical.phrasing import wording
from sql_agent.data.medical.schema import SCHEMA
from sql_agent.data.medical.task import TASK
from sql_agent.database import open_database
from sql_agent.schemas import Lang, Outcome, Question, RolloutRecord
from tests.support.small_database import make_database


@pytest.mark.parametrize("lang", get_args(Lang))
def test_the_instructions_name_the_real_columns_and_the_purpose(lang: Lang, tmp_path: Path) -> None:
    with open_database(make_database(tmp_path / "medical.db"), SCHEMA) as database:
        text = TASK.instructions(lang, database.schema.columns)
    assert ("drugs_info(id, med_name," if lang == "en" else "drugs_info(id 编号, med_name 药物名称,") in text
    assert ("not medical advice" if lang == "en" else "不构成医疗建议") in text
    assert "{" not in text


@pytest.mark.parametrize("lang", get_args(Lang))
def test_the_share_of_answers_that_are_the_sentence_of_the_prompt_for_nothing_found(lang: Lang) -> None:
    refusal = wording(lang).no_answer
    assert refusal in TASK.instructions(lang, {})
    records = [
        RolloutRecord(
            question=Question(id=str(number), question="?", answer="x", lang=lang),
            answer=answer,
            outcome=Outcome.ANSWERED,
        )
        for number, answer in enumerate((refusal, "oral", f"{refusal} Or oral.", ""))
    ]
    assert TASK.metrics(records) == {"agent/refused": 0.25}
    assert TASK.metrics([]) == {}
