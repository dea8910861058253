"""A scale keeps the order and the bounds of scores, and its file holds it whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sql_agent.errors import ConfigError, DataError, JudgeError
from sql_agent.reward import Judge, JudgeCase
from sql_agent.reward.judges.facts import FactsJudge
from sql_agent.reward.judges.rescaling import MAX_KNOTS, Scale, ScaledJudge
from sql_agent.schemas import Question
from sql_agent.tasks.medical.medical_task import TASK

UNIT = st.floats(0, 1)
CROWDED = st.floats(0.7, 0.72)
SCORES = st.lists(st.one_of(UNIT, CROWDED, st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=250)


@given(SCORES, UNIT, st.lists(UNIT))
def test_order_and_bounds_hold_for_every_score_seen_or_not(
    scores: list[float], strength: float, others: list[float]
) -> None:
    scale = Scale.fit(scores, strength)
    asked = sorted({*scores, *others, 0.0, 1.0})
    scaled = [scale.apply(score) for score in asked]
    assert scaled == sorted(scaled)
    assert scaled[0] == 0.0
    assert scaled[-1] == 1.0
    assert len(scale.knots) <= MAX_KNOTS


@given(st.lists(st.sampled_from([i / 50 for i in range(51)]), min_size=1, max_size=200), UNIT)
def test_a_seen_score_gets_the_blend_of_itself_and_its_mid_rank(scores: list[float], strength: float) -> None:
    scale = Scale.fit(scores, strength)
    for score in set(scores) - {0.0, 1.0}:
        rank = sum(s < score for s in scores) + scores.count(score) / 2
        assert scale.apply(score) == pytest.approx((1 - strength) * score + strength * rank / len(scores))


@given(SCORES, UNIT)
def test_a_scale_comes_back_from_its_file_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, scores: list[float], strength: float
) -> None:
    scale = Scale.fit(scores, strength, source=["gradings.jsonl"])
    path = tmp_path_factory.mktemp("scale") / "scale.json"
    scale.save(path)
    assert Scale.load(path) == scale


def test_at_most_101_knots_stay_within_a_hundredth_of_the_full_distribution() -> None:
    common = [0.9 + 0.05 * (i / 5000) ** 2 for i in range(5000)]
    scores = common + [i / 1000 for i in range(1, 900)] + [0.5] * 3000
    scale = Scale.fit(scores, 1.0)
    assert len(scale.knots) == MAX_KNOTS
    for score in scores[::97]:
        rank = sum(s < score for s in scores) + scores.count(score) / 2
        assert scale.apply(score) == pytest.approx(rank / len(scores), abs=0.01)


def test_rounding_never_lifts_a_score_above_a_better_one() -> None:
    better = 0.75 + 2**-53  # minus 2**-54 it rounds to 0.75, and 0.03 + (0.29 - 0.03) to more than 0.29
    scale = Scale(knots=((0.0, 0.0), (2**-54, 0.03), (better, 0.29), (1.0, 1.0)))
    assert scale.apply(0.75) <= scale.apply(better) == 0.29


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan")])
def test_a_strength_out_of_range_is_refused(strength: float) -> None:
    with pytest.raises(ConfigError, match="strength"):
        Scale.fit([0.5], strength)


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan")])
def test_what_is_not_a_score_is_refused(score: float) -> None:
    with pytest.raises(DataError, match="not a score"):
        Scale.fit([0.5, score], 0.5)
    with pytest.raises(DataError, match="not a score"):
        Scale.fit([0.5], 0.5).apply(score)
    with pytest.raises(DataError, match="without scores"):
        Scale.fit([], 0.5)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Invalid JSON"),
        ("{}", "knots: Field required"),
        ('{"knots": []}', "x must run from 0 to 1"),
        ('{"knots": [[0, 0]]}', "x must run from 0 to 1"),
        ('{"knots": [[0, 0], [0.9, 1]]}', "x must run from 0 to 1"),
        ('{"knots": [[0, 0], [0.5, 0.2], [0.5, 0.3], [1, 1]]}', "knot 3: x must rise"),
        ('{"knots": [[0, 0], [0.5, 0.6], [1, 0.5]]}', "knot 3: y must not fall"),
        ('{"knots": [[0, 0], [0.5, 1.2], [1, 1]]}', r"knots\.1\.1"),
        ('{"knots": [[0, 0], [0.5, NaN], [1, 1]]}', r"knots\.1\.1"),
        ('{"knots": [[0, 0], [0.5, "0.5"], [1, 1]]}', r"knots\.1\.1"),
        ('{"knots": [[0, 0], [1, 1]], "power": 2}', "power: Extra"),
    ],
)
def test_a_wrong_scale_file_is_named_with_its_problem(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "scale.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as caught:
        Scale.load(path)
    assert str(path) in caught.value.message


def test_a_scale_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json: No such file"):
        Scale.load(tmp_path / "nowhere.json")
    with pytest.raises(ConfigError, match="cannot write"):
        Scale.fit([0.5], 0.5).save(tmp_path / "no-folder" / "scale.json")


METFORMIN = Question(id="effects", question="What are the side effects of Metformin?", answer="nausea; diarrhoea")


async def test_a_scaled_judge_changes_the_score_only_and_keeps_the_one_before() -> None:
    inner = FactsJudge(TASK.words)
    case = JudgeCase(question=METFORMIN, answer="nausea")  # known by heart, so it earns little
    plain = await inner.grade(case)
    assert 0.0 < plain.score <= 0.1
    judge = ScaledJudge(inner, Scale(knots=((0.0, 0.0), (0.1, 0.6), (1.0, 1.0))))
    assert isinstance(judge, Judge)
    assert judge.name == "facts-scaled"
    verdict = await judge.grade(case)
    assert verdict.score == pytest.approx(6 * plain.score)
    assert verdict.criteria == plain.criteria | {"unscaled": plain.score}
    assert verdict.reason == plain.reason


async def test_a_judge_that_fails_still_fails_when_scaled() -> None:
    judge = ScaledJudge(FactsJudge(TASK.words), Scale.fit([0.5], 0.5))
    with pytest.raises(JudgeError):
        await judge.grade(JudgeCase(question=METFORMIN.model_copy(update={"answer": ""}), answer="nausea"))
