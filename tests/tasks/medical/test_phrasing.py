"""Each pool has phrasings enough, with the slots that its questions fill."""

from __future__ import annotations

import string
from pathlib import Path

import pytest

from sql_agent.schemas import Lang
from sql_agent.tasks.medical.phrasing import HELD_OUT, Wording, wording


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_type_has_enough_phrasings_that_fit(lang: Lang) -> None:
    words: Wording = wording(lang)
    needs = {
        "drug_field": {"name", "field"},
        "disease_field": {"name", "field"},
        "comparison": {"name", "other", "field"},
        "keyword_search": {"rows", "keyword", "field"},
        "aggregate": {"rows", "keyword", "field"},
        "aggregate_among": {"names", "keyword", "field"},
        "disease_to_drugs": {"name"},
        "treatment_to_drugs": {"name"},
    }
    assert set(words.phrasings) == set(needs)
    for pool, phrasings in words.phrasings.items():
        assert len(set(phrasings)) - HELD_OUT >= 8, pool
        for phrasing in phrasings:
            used = {name for _, name, _, _ in string.Formatter().parse(phrasing) if name}
            assert needs[pool] <= used <= needs[pool] | {"rows"}, phrasing


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_prompt_tells_the_model_to_say_what_the_answer_is(lang: Lang) -> None:
    prompt = (Path(__file__).parents[3] / f"sql_agent/tasks/medical/prompts/agent.{lang}.txt").read_text(
        encoding="utf-8"
    )
    assert wording(lang).no_answer in prompt
