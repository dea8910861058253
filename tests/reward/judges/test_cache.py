"""A grading is paid for once: later, in another process, and when several ask for it at the same time."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from sql_agent.errors import ConfigError, JudgeCutOffError, JudgeError
from sql_agent.reward import JudgeCase
from sql_agent.schemas import Evidence
from tests.support.judge_server import Server, completion
from tests.support.llm_judge import ATTEMPTS, CALL, CASE, GOOD_SCORE, ROWS, judge_at

SLOW = 0.3  # seconds until the default reply: enough for all to be waiting


async def test_a_second_pass_asks_nothing(server: Server, tmp_path: Path) -> None:
    first = await judge_at(server, cache_dir=tmp_path).grade(CASE)
    second = await judge_at(server, cache_dir=tmp_path).grade(CASE)
    assert (first.score, first.reason) == (second.score, second.reason)
    assert (len(server.requests), second.usage.cache_hits, second.usage.requests) == (1, 1, 0)


def test_a_folder_that_cannot_be_written_is_refused_before_a_grading(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot write to judge"):
        judge_at(server, cache_dir=tmp_path / "file" / "cache")


@pytest.mark.parametrize(
    "change",
    [
        {"answer": "pain"},
        {"question": CASE.question.model_copy(update={"question": "Why?"})},
        {"question": CASE.question.model_copy(update={"answer": "cough"})},
        {"question": CASE.question.model_copy(update={"lang": "zh"})},
        {"question": CASE.question.model_copy(update={"task_type": "drug_field"})},
        {
            "question": CASE.question.model_copy(
                update={"evidence": (Evidence(table="drugs_info", row_id=1, field="uses", quote="pain"),)}
            )
        },
        {"calls": (CALL.model_copy(update={"answer": ROWS.model_copy(update={"records": (("cough",),)})}),)},
        {"calls": (CALL.model_copy(update={"sql": "SELECT 'pain; fever' AS uses FROM drugs_info"}),)},
    ],
)
async def test_another_case_is_another_grading(server: Server, tmp_path: Path, change: dict[str, Any]) -> None:
    asked = judge_at(server, cache_dir=tmp_path)
    await asked.grade(CASE)
    await asked.grade(CASE.model_copy(update=change))
    assert len(server.requests) == 2


async def test_what_no_judge_goes_by_is_no_other_grading(server: Server, tmp_path: Path) -> None:
    asked = judge_at(server, cache_dir=tmp_path)
    question = CASE.question.model_copy(update={"id": "2"})
    await asked.grade(CASE)
    slower = CALL.model_copy(update={"seconds": 9.0})
    await asked.grade(JudgeCase(question=question, answer=CASE.answer, calls=(slower,)))
    assert len(server.requests) == 1


@pytest.fixture
def other_rubric(tmp_path: Path) -> Path:
    """The shipped rubric with another weight."""
    path = tmp_path / "rubric.toml"
    text = files("sql_agent.reward.judges").joinpath("rubrics", "default.toml").read_text(encoding="utf-8")
    path.write_text(text.replace("weight = 0.3\n", "weight = 0.4\n"), encoding="utf-8")
    return path


@pytest.mark.parametrize("settings", [{"model": "n"}, {"max_tokens": 900}, {"rubric": None}])
async def test_another_judge_grades_anew(
    server: Server, tmp_path: Path, other_rubric: Path, settings: dict[str, Any]
) -> None:
    settings = {name: value or other_rubric for name, value in settings.items()}
    await judge_at(server, cache_dir=tmp_path / "cache").grade(CASE)
    await judge_at(server, cache_dir=tmp_path / "cache", **settings).grade(CASE)
    assert len(server.requests) == 2


async def test_another_endpoint_grades_anew(server: Server, other_server: Server, tmp_path: Path) -> None:
    for at in (server, other_server, server):
        await judge_at(at, cache_dir=tmp_path).grade(CASE)
    assert (len(server.requests), len(other_server.requests)) == (1, 1)


async def test_an_error_is_not_kept(server: Server, tmp_path: Path) -> None:
    server.script = [401]
    asked = judge_at(server, cache_dir=tmp_path)
    with pytest.raises(JudgeError):
        await asked.grade(CASE)
    assert (await asked.grade(CASE)).score == GOOD_SCORE


async def test_equal_gradings_at_once_are_one_request(server: Server, tmp_path: Path) -> None:
    server.script = [SLOW, SLOW]
    asked = judge_at(server, cache_dir=tmp_path)
    other = CASE.model_copy(update={"answer": "fever"})
    verdicts = await asyncio.gather(*(asked.grade(CASE) for _ in range(8)), asked.grade(other))
    assert len(server.requests) == 2
    assert [verdict.score for verdict in verdicts] == [GOOD_SCORE] * 9
    usages = [verdict.usage for verdict in verdicts[:8]]
    assert sorted((usage.requests, usage.prompt_tokens, usage.cache_hits) for usage in usages) == [
        *[(0, 0, 1)] * 7, (1, 100, 0),
    ]  # fmt: skip


async def test_a_failure_is_not_shared(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ATTEMPTS, 1)
    server.script = [completion("{", finish_reason="length")]
    asked = judge_at(server, cache_dir=tmp_path)
    failed, *verdicts = await asyncio.gather(*(asked.grade(CASE) for _ in range(4)), return_exceptions=True)
    assert isinstance(failed, JudgeCutOffError)
    assert [getattr(verdict, "score", None) for verdict in verdicts] == [GOOD_SCORE] * 3
    assert len(server.requests) == 2


async def test_one_that_is_cancelled_takes_nothing_from_the_others(server: Server, tmp_path: Path) -> None:
    server.script = [SLOW]
    asked = judge_at(server, cache_dir=tmp_path)
    first, second = asyncio.create_task(asked.grade(CASE)), asyncio.create_task(asked.grade(CASE))
    await asyncio.sleep(SLOW / 3)
    first.cancel()
    verdict = await second
    assert verdict.score == GOOD_SCORE
    assert verdict.usage.requests == 1
    with pytest.raises(asyncio.CancelledError):
        await first
