"""Calls to a judging model over real HTTP that behaves well, badly, or not at all."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest

from sql_agent.errors import JudgeCutOffError, JudgeError, JudgeRefusedError
from sql_agent.reward import JudgeCase
from tests.support.judge_server import KEY, Server, completion
from tests.support.llm_judge import ATTEMPTS, CASE, GOOD, GOOD_SCORE, grades, judge_at

CUT = completion(GOOD[:60], finish_reason="length")
REFUSED = completion("", refusal="I cannot help with medical content.")
FILTERED = completion("", finish_reason="content_filter")
AZURE = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
OPENAI = "Invalid prompt: your prompt was flagged as potentially violating our usage policy."


@pytest.mark.parametrize(
    ("script", "calls"),
    [
        ([GOOD], 1),
        ([f"Here it is: {GOOD} as asked"], 1),
        ([f"<think>Is {{}} right?</think>{GOOD}"], 1),
        ([429, 503, GOOD], 3),
        (["I like it.", GOOD], 2),
        ([GOOD[:60], GOOD], 2),
        (["I like it.", GOOD[:60], 500, "{}", GOOD], 5),
        ([grades(accuracy="excellent"), GOOD], 2),
        ([GOOD.replace('"safety"', '"safeness"'), GOOD], 2),
    ],
)
async def test_a_grade_is_reached_when_there_is_one_to_be_had(server: Server, script: list[Any], calls: int) -> None:
    server.script = list(script)
    verdict = await judge_at(server).grade(CASE)
    assert verdict.score == GOOD_SCORE
    assert verdict.criteria["completeness"] == pytest.approx(0.7)
    assert "accuracy: seen" in verdict.reason
    assert len(server.requests) == verdict.usage.requests == calls


@pytest.mark.parametrize("script", [["prose"] * 3, [401], [500] * 3, [grades(safety="1.0")] * 3, [""] * 3])
async def test_a_judge_that_fails_is_an_error_and_never_a_score(
    server: Server, script: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ATTEMPTS, 3)
    server.script = list(script)
    with pytest.raises(JudgeError) as caught:
        await judge_at(server).grade(CASE)
    assert KEY not in str(caught.value)
    assert caught.value.usage is not None
    assert caught.value.usage.requests == len(server.requests) == len(script)
    replies = sum(isinstance(step, str) for step in script)
    assert caught.value.usage.prompt_tokens == 100 * replies, "tokens are paid for, parsed or not"


async def test_an_endpoint_that_has_never_answered_is_named_at_its_first_failure(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.script = [500, 500]
    judge = judge_at(server)
    await judge.grade(CASE)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and "has not answered yet and is asked again: InternalServerError" in said[0]
    assert KEY not in caplog.text
    server.script = [500]
    await judge.grade(case_of(1))
    assert len(caplog.records) == 2, "of one that answers now and then each failure would be a line"


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_what_the_library_adds_to_an_error_is_left_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ATTEMPTS, 1)
    server.default = {"choices": [{"index": 0, "message": 5}]}
    with pytest.raises(JudgeError) as caught:
        await judge_at(server).grade(CASE)
    assert "Invalid response object" in str(caught.value)
    assert "\n" not in str(caught.value) and "Traceback" not in str(caught.value)


async def test_a_hanging_request_is_given_up_and_tried_again(server: Server) -> None:
    server.script = [30.0]
    started = time.monotonic()
    assert (await judge_at(server, timeout_s=0.5).grade(CASE)).score == GOOD_SCORE
    assert time.monotonic() - started < 5


async def test_the_repair_shows_the_model_what_it_replied(server: Server) -> None:
    server.script = ["I like it."]
    await judge_at(server).grade(CASE)
    roles = [(m["role"], m["content"][:10]) for m in server.requests[1]["messages"]]
    assert [role for role, _ in roles] == ["user", "assistant", "user"]
    assert roles[1][1] == "I like it."


async def test_the_endpoint_says_how_long_to_wait(server: Server) -> None:
    server.script, server.headers = [429], {"retry-after": "1"}
    await judge_at(server).grade(CASE)
    assert server.times[1] - server.times[0] >= 1


async def test_no_request_that_was_answered_is_sent_again(server: Server) -> None:
    """Also where the model gives the same useless reply each time, and after one that was cut off."""
    server.default = "I like it."
    with pytest.raises(JudgeError, match="no usable reply"):
        await judge_at(server).grade(CASE)
    server.default = CUT
    with pytest.raises(JudgeCutOffError):
        await judge_at(server).grade(CASE)
    bodies = [json.dumps(request, sort_keys=True) for request in server.requests]
    assert len(set(bodies)) == len(bodies) == 6 + 3


async def test_a_reply_that_was_cut_off_is_asked_for_with_more_room(server: Server) -> None:
    server.script = [CUT]
    verdict = await judge_at(server, max_tokens=50).grade(CASE)
    assert verdict.score == GOOD_SCORE
    assert verdict.usage.requests == 2
    assert [request["max_tokens"] for request in server.requests] == [50, 100]
    assert [len(request["messages"]) for request in server.requests] == [1, 1], "half a reply is not shown"


@pytest.mark.parametrize(("attempts", "tokens"), [(6, 200), (2, 100)])
async def test_a_reply_that_never_ends_says_so_and_what_to_do(
    server: Server, attempts: int, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ATTEMPTS, attempts)
    server.default = CUT
    with pytest.raises(JudgeCutOffError, match=f"cut off at {tokens} tokens") as caught:
        await judge_at(server, max_tokens=50).grade(CASE)
    assert "raise judge.max_tokens (now 50)" in str(caught.value)
    assert caught.value.usage is not None
    assert caught.value.usage.requests == len(server.requests) <= 3


async def test_what_was_cut_off_is_not_read_even_if_it_looks_whole(server: Server) -> None:
    server.script = [completion(grades(accuracy="wrong") + " But on second thought", finish_reason="length")]
    assert (await judge_at(server).grade(CASE)).score == GOOD_SCORE


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (REFUSED, "I cannot help"),
        (FILTERED, "content_filter"),
        ({"error": {"message": AZURE, "code": "content_filter"}}, "content management"),
        ({"error": {"message": OPENAI, "code": "invalid_prompt"}}, "usage policy"),
    ],
)
async def test_a_refusal_of_the_judge_is_a_reason_of_its_own_and_not_asked_again(
    server: Server, reply: dict[str, Any], why: str
) -> None:
    server.default = reply
    with pytest.raises(JudgeRefusedError, match=f"refused to grade: .*{why}") as caught:
        await judge_at(server).grade(CASE)
    assert caught.value.usage is not None
    assert caught.value.usage.requests == len(server.requests) == 1


async def test_a_filtered_reply_is_no_grading_even_if_it_looks_whole(server: Server) -> None:
    server.default = completion(GOOD, finish_reason="content_filter")
    with pytest.raises(JudgeRefusedError):
        await judge_at(server).grade(CASE)


async def test_a_body_without_any_reply_is_an_error_and_never_a_score(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ATTEMPTS, 2)
    server.default = {**completion(""), "choices": []}
    with pytest.raises(JudgeError):
        await judge_at(server).grade(CASE)


@pytest.mark.parametrize(
    ("model", "limit", "temperature"),
    [
        ("m", "max_tokens", 0.0),
        ("gpt-4o", "max_tokens", 0.0),
        ("gpt-5-chat-latest", "max_tokens", 0.0),
        ("gpt-5", "max_completion_tokens", None),
        ("gpt-5-mini", "max_completion_tokens", None),
        ("openai/gpt-5.1", "max_completion_tokens", None),
        ("o3", "max_completion_tokens", None),
        ("o4-mini-2025-04-16", "max_completion_tokens", None),
        ("o9-mini", "max_completion_tokens", None),  # litellm does not know it
    ],
)
async def test_temperature_is_sent_only_to_models_that_take_it(
    server: Server, model: str, limit: str, temperature: float | None
) -> None:
    assert (await judge_at(server, model=model, max_tokens=300).grade(CASE)).score == GOOD_SCORE
    request = server.requests[0]
    assert request.get("temperature") == temperature
    assert {name: request[name] for name in ("max_tokens", "max_completion_tokens") if name in request} == {limit: 300}


async def test_the_form_of_the_reply_is_demanded_as_a_json_schema(server: Server) -> None:
    await judge_at(server).grade(CASE)
    form = server.requests[0]["response_format"]
    level = form["json_schema"]["schema"]["$defs"]["accuracy"]["properties"]["level"]
    assert level["enum"] == ["right", "mostly", "partly", "wrong"]


async def test_an_endpoint_that_knows_no_json_schema_is_asked_without_one_from_then_on(server: Server) -> None:
    server.script = [{"error": {"message": "unknown parameter: response_format.json_schema"}}]
    judge = judge_at(server)
    assert (await judge.grade(CASE)).score == GOOD_SCORE
    await judge.grade(CASE.model_copy(update={"answer": "fever"}))
    assert ["response_format" in request for request in server.requests] == [True, False, False]


async def test_limits_are_held(server: Server) -> None:
    asked = judge_at(server, concurrency=3, requests_per_minute=1200)
    await asyncio.gather(*(asked.grade(case_of(n)) for n in range(25)))
    times = server.times[1:]  # the first one also opens the connection
    # 24 requests at 20 a second; a busy machine shifts their arrival, and without a limit all come in 0.3 s
    assert times[-1] - times[0] >= 0.8
    assert max(sum(start <= time < start + 0.5 for time in times) for start in times) <= 18, "no burst"


async def test_the_limit_of_tokens_goes_by_what_was_used(server: Server) -> None:
    """A grading is 110 tokens as the server counts, whatever was guessed before it."""
    asked = judge_at(server, concurrency=1, tokens_per_minute=60 * 1100, max_tokens=50)
    for number in range(12):
        await asked.grade(case_of(number))
    assert 1.0 <= server.times[-1] - server.times[0] <= 4.0


async def test_a_judge_outlives_its_event_loop(server: Server) -> None:
    """`asyncio.run` twice, as a script does."""
    asked = judge_at(server, concurrency=1)

    def run(turn: int) -> list[float]:
        async def several() -> list[float]:
            return [v.score for v in await asyncio.gather(*(asked.grade(case_of(n + 4 * turn)) for n in range(4)))]

        return asyncio.run(several())

    assert await asyncio.to_thread(run, 0) == await asyncio.to_thread(run, 1)


async def test_a_judge_that_goes_away_in_a_run_is_waited_for_and_both_are_said(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ATTEMPTS, 1)
    judge = judge_at(server)
    server.default = GOOD
    await judge.grade(CASE)
    address = server.server_address
    server.shutdown()
    server.server_close()
    waiting = asyncio.create_task(judge.grade(case_of(1)))
    while "does not answer any more" not in caplog.text:  # noqa: ASYNC110  a log has no event
        await asyncio.sleep(0.02)
    again = Server(port=int(address[1]))
    again.default = GOOD
    threading.Thread(target=again.serve_forever, daemon=True).start()
    assert (await waiting).score == GOOD_SCORE
    again.shutdown()
    again.server_close()
    assert "answers again" in caplog.text


async def test_a_judge_that_never_answered_is_not_waited_for(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ATTEMPTS, 1)
    server.shutdown()
    server.server_close()
    started = time.monotonic()
    with pytest.raises(JudgeError, match="failed"):
        await judge_at(server).grade(CASE)
    assert time.monotonic() - started < 5


async def test_a_judge_that_hangs_is_named(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    judge = judge_at(server, timeout_s=1)
    server.default = GOOD
    await judge.grade(CASE)
    assert caplog.text == ""
    server.script = [3.0]
    await judge.grade(case_of(2))
    hangs, answered = (record.getMessage() for record in caplog.records)
    assert "did not answer within 1 s" in hangs and answered.endswith("answers again.")


def case_of(number: int) -> JudgeCase:
    """Another case for each `number`, which no cache answers."""
    return CASE.model_copy(update={"answer": f"pain {number}"})
