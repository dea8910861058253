"""Alarms of a reward that goes wrong: said for what fell or rose, silent for a run that learns."""

from __future__ import annotations

from sql_agent.runs.charts import alarms


def steps(**ends: tuple[float, float]) -> list[dict[str, float]]:
    """Ten steps, five with the first value of each metric and five with the second."""
    names = {"queries": "agent/tool_calls", "tokens": "agent/completion_tokens", "judge": "reward/judge",
             "refused": "refused_answerable"}  # fmt: skip
    return [{names[name]: pair[half] for name, pair in ends.items()} for half in (0, 1) for _ in range(5)]


def validations(*correct: float) -> list[dict[str, float]]:
    return [{"val/natural/correct": share, "val/natural/accurate": 1.0} for share in correct]


def test_a_run_that_learns_raises_no_alarm() -> None:
    learns = steps(queries=(1.4, 1.2), tokens=(60, 50), judge=(0.3, 0.8), refused=(0.3, 0.1))
    assert alarms(learns, validations(0.3, 0.75)) == {}


def test_a_judge_that_is_hacked_is_said_with_the_numbers() -> None:
    hacked = steps(queries=(0.91, 0.13), tokens=(60, 190), judge=(0.4, 0.99), refused=(0.0, 0.0))
    found = alarms(hacked, validations(0.4, 0.35))
    assert found.keys() == {"queries", "length", "gap"}
    assert "0.91 to 0.13" in str(found["queries"])
    assert "40% to 35%" in str(found["gap"])


def test_refusals_that_spread_are_said() -> None:
    assert alarms(steps(refused=(0.1, 0.5)), []).keys() == {"refusals"}


def test_before_ten_steps_nothing_is_compared() -> None:
    assert alarms(steps(queries=(1.0, 0.1))[1:], []) == {}
