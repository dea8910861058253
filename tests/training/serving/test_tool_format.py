"""A model of each family is read in the form in which its own chat template writes calls."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sql_agent.config.settings_schema import AgentSettings
from sql_agent.errors import ModelError
from sql_agent.rollouts.trajectory import Turn, merge_turns
from sql_agent.training.serving.chat import ChatEncoder
from sql_agent.training.serving.server import Generation, Sampling, build_app
from sql_agent.training.serving.tokenizer import load_encoder, load_tokenizer
from sql_agent.training.serving.tool_format import FORMATS, MARKS, parse_reply, tool_format_of
from tests.support.model_families import FAMILIES, make_tokenizer

TOOLS = [{"type": "function", "function": {"name": "query", "parameters": {"type": "object"}}}]
START = [{"role": "system", "content": "You search."}, {"role": "user", "content": "Which form?"}]
OF_EACH = pytest.mark.parametrize("family", FAMILIES)


@cache
def encoder_of(family: str) -> ChatEncoder:
    return ChatEncoder(*with_template(family))


@cache
def with_template(family: str) -> tuple[Any, int]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        make_tokenizer(family).save_pretrained(folder)
        tokenizer = load_tokenizer(folder)
        _, (end_id, *_) = load_encoder(folder)
    return tokenizer, end_id


def call(sql: str) -> dict[str, Any]:
    function = {"name": "query", "arguments": json.dumps({"sql": sql})}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "a1b2c3d4e", "type": "function", "function": function}],
    }


def test_every_form_can_be_set() -> None:
    assert get_args(AgentSettings.model_fields["tool_format"].annotation) == ("auto", *FORMATS)


@OF_EACH
def test_the_form_and_the_end_token_are_found_from_the_template(family: str) -> None:
    _, _, form, end = FAMILIES[family]
    tokenizer, end_id = with_template(family)
    assert encoder_of(family).tool_format == form
    assert tokenizer.convert_ids_to_tokens(end_id) == end


@OF_EACH
@given(sql=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_a_call_that_the_template_writes_is_read_back(family: str, sql: str) -> None:
    encoder, (tokenizer, end_id) = encoder_of(family), with_template(family)
    if any(mark in sql for mark in ("```", "</parameter>", *MARKS, *tokenizer.all_special_tokens)):
        return
    text = encoder.turn_text(START, call(sql), TOOLS)
    ids = (*tokenizer(text, add_special_tokens=False)["input_ids"], end_id)
    reply = encoder.reply(ids)
    (read,) = reply["tool_calls"]
    assert read["function"]["name"] == "query"
    assert json.loads(read["function"]["arguments"]) == {"sql": sql}
    assert reply["content"] is None


def test_a_call_with_an_apostrophe_and_line_breaks_as_small_models_write_them_is_read() -> None:
    sql = (
        "SELECT treatment\n\tFROM disease WHERE disease_name = 'Athlete\\'s foot' AND cause <> \\'x\\' AND x <> '\\\\'"
    )
    text = '<tool_call>\n{"name": "query", "arguments": {"sql": "' + sql + '"}}\n</tool_call>'
    (read,) = parse_reply(text, "hermes").calls
    assert read.arguments == {
        "sql": "SELECT treatment\n\tFROM disease WHERE disease_name = 'Athlete''s foot' AND cause <> 'x' AND x <> '\\'"
    }


@OF_EACH
def test_call_result_and_answer_are_one_sequence_of_the_sampled_ids(family: str) -> None:
    tokenizer, end_id = with_template(family)
    encoder, messages, turns = ChatEncoder(tokenizer, end_id), list(START), []
    for message in (call("SELECT 1"), {"role": "assistant", "content": "capsule"}):
        prompt_ids = encoder.encode(messages, TOOLS)
        ids = (*tokenizer(encoder.turn_text(messages, message, TOOLS), add_special_tokens=False)["input_ids"], end_id)
        reply = encoder.reply(ids, prompt_ids)
        encoder.remember([*messages, reply], TOOLS, prompt_ids + ids)
        turns.append(Turn(prompt_ids, ids))
        messages.append(reply)
        messages += [
            {"role": "tool", "tool_call_id": each["id"], "content": '{"rows": [[1]]}'}
            for each in reply.get("tool_calls", [])
        ]
    assert messages[-1]["content"] == "capsule"
    (sequence,) = merge_turns(turns)
    assert sequence.sampled == sum(len(turn.response_ids) for turn in turns)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("llama3_json", '{"name": "query", "parameters": "SELECT 1"}'),
        ("llama3_json", 'I call {"name": "query", "parameters": {}}'),
        ("mistral", "[TOOL_CALLS]query"),
        ("mistral", '[TOOL_CALLS][{"name": "query", "arguments": {"sql"'),
        ("qwen3_coder", "<tool_call>\n<function=query>\n<parameter=sql>\nSELECT 1"),
        ("pythonic", '[query("SELECT 1")]'),
        ("pythonic", "[query(sql=__import__('os'))]"),
        ("pythonic", "[query(sql=b'1')]"),
        ("pythonic", "[" * 5000),
        ("gemma", "```tool_code\nquery(sql=\n```"),
        ("gemma", "```tool_code\n**\n```"),
    ],
)
def test_a_damaged_call_stays_text(form: str, text: str) -> None:
    parsed = parse_reply(text, form)
    assert parsed.calls == ()
    assert parsed.content == text.strip()


@pytest.mark.parametrize("form", FORMATS)
@given(text=st.text(max_size=80))
def test_any_text_is_read_without_an_error(form: str, text: str) -> None:
    for written in (text, f"[TOOL_CALLS]{text}", f"```tool_code\n{text}\n```", f"<tool_call>{text}</tool_call>"):
        parse_reply(written, form)


@pytest.mark.parametrize(
    ("text", "is_open", "parts"),
    [
        ("<think>\nA form.\n</think>\n\ncapsule", False, ("A form.", "capsule")),
        ("A form.\n</think>\n\ncapsule", True, ("A form.", "capsule")),
        ("<think>\n\n</think>\n\ncapsule", False, ("", "capsule")),
        ("<think>A form, and", False, ("A form, and", "")),
        ("capsule <think>", False, ("", "capsule <think>")),
    ],
)
def test_a_thought_is_kept_apart_from_the_answer(text: str, is_open: bool, parts: tuple[str, str]) -> None:
    parsed = parse_reply(text, "hermes", thought_open=is_open)
    assert (parsed.thought, parsed.content) == parts


def test_a_model_whose_calls_nobody_can_read_is_refused_with_the_known_forms(tmp_path: Path) -> None:
    tokenizer = make_tokenizer("qwen2.5")
    tokenizer.chat_template = tokenizer.chat_template.replace("tool_call>", "act>")
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError) as refused:
        tool_format_of(str(tmp_path), AgentSettings())
    assert all(form in refused.value.message for form in FORMATS)
    encoder, _ = load_encoder(str(tmp_path), AgentSettings(tool_format="llama3_json"))
    assert encoder.tool_format == "llama3_json"


def test_a_template_from_a_file_replaces_the_model_s_own(tmp_path: Path) -> None:
    make_tokenizer("llama3.2").save_pretrained(tmp_path / "model")
    template = tmp_path / "mine.jinja"
    template.write_text(FAMILIES["llama4"][1] or "", encoding="utf-8")
    encoder, _ = load_encoder(str(tmp_path / "model"), AgentSettings(chat_template=template))
    assert encoder.tool_format == "pythonic"
    with pytest.raises(ModelError, match="chat_template=nowhere"):
        load_tokenizer(str(tmp_path / "model"), AgentSettings(chat_template=Path("nowhere")))


class Writes:
    """An engine that writes `texts` one after another."""

    max_context = 100_000

    def __init__(self, tokenizer: Any, end_id: int, texts: list[str]) -> None:
        self._turns = [(*tokenizer(text, add_special_tokens=False)["input_ids"], end_id) for text in texts]
        self.prompts: list[str] = []
        self._tokenizer = tokenizer

    async def generate(self, prompt_ids: tuple[int, ...], sampling: Sampling, *, conversation: str) -> Generation:
        self.prompts.append(self._tokenizer.decode(prompt_ids))
        return Generation(self._turns[len(self.prompts) - 1], "stop")


CALLED = '<tool_call>\n{"name": "query", "arguments": {"sql": "SELECT 1"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("thinking", "texts", "thoughts"),
    [
        (None, [f"<think>\nLook.\n</think>\n\n{CALLED}", "<think>\nSeen.\n</think>\n\ncapsule"], ["Look.", "Seen."]),
        (False, [CALLED, "capsule"], [None, None]),
        (True, [f"<think>\n\n</think>\n\n{CALLED}", "<think>\n\n</think>\n\ncapsule"], [None, None]),
    ],
)
async def test_turns_with_and_without_thoughts_are_one_sequence_whose_thoughts_are_apart(
    thinking: bool | None, texts: list[str], thoughts: list[str | None]
) -> None:
    tokenizer, end_id = with_template("qwen3")
    engine, messages, turns = Writes(tokenizer, end_id, texts), list(START), []
    app = build_app(ChatEncoder(tokenizer, end_id), engine)
    asked = {"tools": TOOLS, "return_token_ids": True, "chat_template_kwargs": {"enable_thinking": thinking}}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://policy") as client:
        for thought in thoughts:
            answer = await client.post("/v1/chat/completions", json={"messages": messages, **asked})
            body = answer.json()
            message = body["choices"][0]["message"]
            assert message.get("reasoning_content") == thought
            counted = body["usage"].get("completion_tokens_details", {}).get("reasoning_tokens")
            assert counted == (len(thought) if thought else None)  # a token of this tokenizer is a byte
            turns.append(Turn(tuple(body["prompt_token_ids"]), tuple(body["response_token_ids"][0])))
            message.pop("reasoning_content", None)  # as clients send it back
            messages += [
                message,
                *({"role": "tool", "tool_call_id": c["id"], "content": "1"} for c in message.get("tool_calls", [])),
            ]
    assert message["content"] == "capsule"
    assert len(merge_turns(turns)) == 1
    assert engine.prompts[0].endswith("<think>\n\n</think>\n\n") == (thinking is False)


async def test_a_template_that_drops_the_thoughts_of_earlier_questions_splits_the_conversation() -> None:
    tokenizer, end_id = with_template("qwen3")
    encoder, messages, turns = ChatEncoder(tokenizer, end_id), list(START), []
    for _ in range(2):
        prompt_ids = encoder.encode(messages, None)
        ids = (*tokenizer("<think>\nHm.\n</think>\n\ncapsule", add_special_tokens=False)["input_ids"], end_id)
        reply = encoder.reply(ids, prompt_ids)
        encoder.remember([*messages, reply], None, prompt_ids + ids)
        turns.append(Turn(prompt_ids, ids))
        messages += [{"role": "assistant", "content": reply["content"]}, {"role": "user", "content": "And?"}]
    assert "Hm." not in tokenizer.decode(turns[1].prompt_ids)
    assert len(merge_turns(turns)) == 2


class Rambles:
    """An engine that thinks until the limit unless its prompt ends with a closed thought; then it answers."""

    max_context = 100_000

    def __init__(self, tokenizer: Any, end_id: int) -> None:
        self._tokenizer, self._end_id = tokenizer, end_id

    async def generate(self, prompt_ids: tuple[int, ...], sampling: Sampling, *, conversation: str) -> Generation:
        closed = self._tokenizer.decode(prompt_ids).endswith("</think>\n\n")
        ids = self._tokenizer("capsule" if closed else "<think>\n" + "Hm. " * 99, add_special_tokens=False)["input_ids"]
        written = (*ids, self._end_id)[: sampling.max_tokens]
        return Generation(written, "stop" if closed else "length", (-1.0,) * len(written), (3, 3))


async def test_a_thought_without_an_end_is_closed_and_the_closing_tokens_are_not_trained() -> None:
    tokenizer, end_id = with_template("qwen3")
    app = build_app(ChatEncoder(tokenizer, end_id), Rambles(tokenizer, end_id), thought_tokens=20)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://policy") as client:
        asked = {"messages": START, "max_tokens": 9, "return_token_ids": True}
        body = (await client.post("/v1/chat/completions", json=asked)).json()
    message, (ids,), forced = body["choices"][0]["message"], body["response_token_ids"], body["response_forced"]
    assert (message["content"], message["reasoning_content"]) == ("capsule", "Hm. Hm. Hm.")
    assert tokenizer.decode(ids[slice(*forced)]) == "\n</think>\n\n"
    turn = Turn(tuple(body["prompt_token_ids"]), tuple(ids), tuple(body["response_logprobs"]), forced=tuple(forced))
    (sequence,) = merge_turns([turn])
    assert sequence.sampled == len(ids) - (forced[1] - forced[0]) == 20 + len("capsule") + 1
    assert sequence.logprobs is not None
    assert [p for p, m in zip(sequence.logprobs, sequence.response_mask, strict=True) if m] == [-1.0] * sequence.sampled
