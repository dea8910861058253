"""What is understood of a judging model's reply: all that is there once and whole, and nothing else."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sql_agent.reward.judges.client import parse_reply
from sql_agent.reward.judges.llm_judge import Rubric, shipped_rubric
from sql_agent.reward.judges.ranking_judge import Ranking
from tests.support.llm_judge import grades

RUBRIC = shipped_rubric("default")
GOOD = grades()
NOTES = st.text(st.characters(exclude_characters="{"), max_size=200).filter(lambda text: "</think>" not in text)
LEVELS = st.fixed_dictionaries({c.name: st.sampled_from([v.name for v in c.levels]) for c in RUBRIC.criterion})
Levels = dict[str, str]


def levels_of(reply: str, rubric: Rubric = RUBRIC) -> Levels | None:
    read = parse_reply(reply, rubric.reply_model)
    return None if read is None else {name: grade["level"] for name, grade in read.model_dump().items()}


def reply_of(levels: Levels, reason: str = "so") -> dict[str, Any]:
    return {name: {"reason": reason, "level": level} for name, level in levels.items()}


@given(LEVELS, st.text(max_size=40), NOTES, NOTES, st.booleans(), st.randoms(use_true_random=False))
def test_a_whole_object_is_understood_whatever_stands_around_it(
    levels: Levels, reason: str, before: str, after: str, ascii_only: bool, rng: random.Random
) -> None:
    written = reply_of({name: rng.choice((str.upper, str.title, str))(f" {level} ") for name, level in levels.items()})
    for part in written.values():
        part |= {"reason": reason, rng.choice(("confidence", "note")): rng.random()}
    keys = [*written, "overall"]
    rng.shuffle(keys)
    shuffled = {key: written.get(key, {"reason": "extra", "level": "right"}) for key in keys}
    assume("</think>" not in reason)
    text = before + json.dumps(shuffled, ensure_ascii=ascii_only, indent=rng.choice((None, 2))) + after
    assert levels_of(text) == levels


@given(LEVELS, st.data())
def test_half_an_object_is_not_understood(levels: Levels, data: st.DataObject) -> None:
    whole = json.dumps(reply_of(levels))
    assert levels_of(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    assert levels_of(whole[data.draw(st.integers(1, len(whole))) :]) is None


@given(LEVELS, st.sampled_from(sorted(LEVELS_NAMES := [c.name for c in RUBRIC.criterion])), st.data())
def test_a_criterion_that_is_missing_or_has_no_level_of_ours_is_not_understood(
    levels: Levels, name: str, data: st.DataObject
) -> None:
    reply = reply_of(levels)
    wrong = data.draw(st.one_of(st.none(), st.integers(), st.text(max_size=12), st.just(["right"])))
    names = {level.name for c in RUBRIC.criterion if c.name == name for level in c.levels}
    assume(not (isinstance(wrong, str) and wrong.strip().casefold() in names))
    assert levels_of(json.dumps({**reply, name: {"reason": "so", "level": wrong}})) is None
    assert levels_of(json.dumps({**reply, name: {"level": levels[name]}})) is None, "a level without its reason"
    assert levels_of(json.dumps({key: value for key, value in reply.items() if key != name})) is None


@given(LEVELS, LEVELS)
def test_two_objects_are_understood_only_if_they_agree(first: Levels, second: Levels) -> None:
    """One of them may be a quotation of the answer, and neither the first nor the last would be safe to take."""
    text = f"{json.dumps(reply_of(first))} and {json.dumps(reply_of(second))}"
    assert levels_of(text) == (first if first == second else None)


@given(st.text(max_size=300))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    assert levels_of(text) is None
    assert parse_reply(text, Ranking) is None


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{GOOD}\n```",
        f"<think>Perhaps {GOOD.replace('right', 'wrong')}?</think>\n{GOOD}",
        f"The form is {{...}} and {{}}, so: {GOOD}\nNote: I was {{strict}}.",
    ],
)
def test_replies_as_models_write_them_are_understood(text: str) -> None:
    assert levels_of(text) == levels_of(GOOD) is not None


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000 + "{" * 100_000,
        '{"a":' * 50_000,
        '{"' * 100_000,
        GOOD.replace('"level": "right"', '"level": "wrong", "level": "right"'),
        GOOD.replace('{"accuracy"', '{"accuracy": {"reason": "x", "level": "wrong"}, "accuracy"', 1),
        json.dumps({"grades": json.loads(GOOD)}),
        json.dumps([1]),
        "",
    ],
    ids=["open brackets", "deep", "open texts", "two levels", "two of one criterion", "wrapped", "list", "empty"],
)
def test_what_could_be_read_in_two_ways_or_not_at_all_is_not_understood(text: str) -> None:
    assert levels_of(text) is None


PLACES = [{"answer": 1, "reason": "so", "score": 0.2}, {"answer": 2, "reason": "so", "score": 1.0}]


def test_a_ranking_is_understood_with_a_note_and_extra_keys() -> None:
    text = json.dumps({"ranking": [{**place, "better": True} for place in PLACES], "best": 2})
    ranking = parse_reply(f"Here:\n{text}\nNote: close.", Ranking)
    assert ranking is not None
    assert [(one.answer, one.score) for one in ranking.ranking] == [(1, 0.2), (2, 1.0)]


@pytest.mark.parametrize("score", ["1.0", True, None, 1.01, -0.1, float("nan"), float("inf")])
def test_a_ranking_with_a_score_that_is_none_is_not_understood(score: Any) -> None:
    assert parse_reply(json.dumps({"ranking": [PLACES[0], {**PLACES[1], "score": score}]}), Ranking) is None
