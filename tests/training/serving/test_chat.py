"""A conversation keeps the exact ids that were sampled, whatever the template and the clients do to its text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sql_agent.rollouts.trajectory import Turn, merge_turns
from sql_agent.training.policy.model import Policy
from sql_agent.training.serving.chat import ChatEncoder
from sql_agent.training.serving.tool_format import parse_reply

TOOLS = [{"type": "function", "function": {"name": "query_database_by_sql", "parameters": {"type": "object"}}}]
START: list[dict[str, Any]] = [
    {"role": "system", "content": "系统 system"},
    {"role": "user", "content": "What is 布洛芬 for?"},
]
FORGETFUL = """{%- for m in messages -%}<|im_start|>{{ m.role }}
{{ m.content if m.role != 'assistant' or loop.last else '' }}<|im_end|>
{% endfor -%}{%- if tools %}{% endif -%}{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""


def converse(encoder: ChatEncoder, policy: Policy, replies: list[tuple[int, ...]]) -> list[Turn]:
    """Play replies (sampled ids) through a client that only sees messages; an id's log-probability is minus itself."""
    messages, turns = list(START), []
    for ids in replies:
        prompt_ids = encoder.encode(messages, TOOLS)
        reply = encoder.reply(ids)
        encoder.remember([*messages, reply], TOOLS, prompt_ids + ids)
        turns.append(Turn(prompt_ids, ids, tuple(-float(i) for i in ids)))
        message = json.loads(json.dumps(reply))
        messages = [*messages, message]
        for call in message.get("tool_calls", []):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": '{"records": [["止痛"]]}'})
        if not message.get("tool_calls"):
            messages.append({"role": "user", "content": "and then?"})
    return turns


def ids_of(policy: Policy, text: str) -> tuple[int, ...]:
    return tuple(policy.tokenizer(text, add_special_tokens=False)["input_ids"])


CALL = '<tool_call>\n{"name": "query_database_by_sql",   "arguments": {"sql": "SELECT  1"}}\n</tool_call>'


@settings(max_examples=50, deadline=None)
@given(system=st.text(max_size=20), asked=st.text(max_size=20))
def test_a_first_prompt_has_the_ids_of_its_text(policy: Policy, system: str, asked: str) -> None:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": asked}]
    text = policy.tokenizer.apply_chat_template(messages, tools=TOOLS, add_generation_prompt=True, tokenize=False)
    assert ChatEncoder(policy.tokenizer, policy.end_id).encode(messages, TOOLS) == ids_of(policy, text)


def test_the_next_prompt_continues_a_call_whose_text_the_client_rewrote(policy: Policy) -> None:
    first = (*ids_of(policy, f"  {CALL}  "), policy.end_id)
    turns = converse(
        ChatEncoder(policy.tokenizer, policy.end_id), policy, [first, (*ids_of(policy, "pain"), policy.end_id)]
    )
    (sequence,) = merge_turns(turns)
    assert sequence.sampled == len(first) + len(turns[1].response_ids)
    middle = [i for i, m in zip(sequence.response_ids, sequence.response_mask, strict=True) if not m]
    text = policy.tokenizer.decode(middle)
    assert "止痛" in text and text.endswith("<|im_start|>assistant\n")


def test_a_turn_cut_off_by_its_length_is_closed_before_the_next_one(policy: Policy) -> None:
    cut = ids_of(policy, "no end")
    turns = converse(ChatEncoder(policy.tokenizer, policy.end_id), policy, [cut, ids_of(policy, "next")])
    (sequence,) = merge_turns(turns)
    assert sequence.response_ids[len(cut)] == policy.end_id
    assert sequence.response_mask[len(cut)] == 0


@settings(max_examples=30)
@given(replies=st.lists(st.lists(st.integers(3, 258), min_size=1, max_size=20).map(tuple), min_size=1, max_size=4))
def test_any_sampled_bytes_stay_one_sequence_with_the_right_mask(
    policy: Policy, replies: list[tuple[int, ...]]
) -> None:
    turns = converse(ChatEncoder(policy.tokenizer, policy.end_id), policy, replies)
    (sequence,) = merge_turns(turns)
    sampled = [i for i, m in zip(sequence.response_ids, sequence.response_mask, strict=True) if m]
    assert sampled == [i for reply in replies for i in reply]
    assert sequence.prompt_ids == turns[0].prompt_ids
    expected = [-float(i) * m for i, m in zip(sequence.response_ids, sequence.response_mask, strict=True)]
    assert sequence.logprobs == tuple(expected), "each log-probability must stay with its token"


def test_a_template_that_rewrites_history_is_seen_as_a_split(policy: Policy) -> None:
    tokenizer = policy.tokenizer
    original, tokenizer.chat_template = tokenizer.chat_template, FORGETFUL
    try:
        turns = converse(
            ChatEncoder(tokenizer, policy.end_id), policy, [(*ids_of(policy, "thought"), policy.end_id)] * 2
        )
    finally:
        tokenizer.chat_template = original
    assert len(merge_turns(turns)) == 2, "a rewritten history must be seen as a split, not glued together"


@pytest.mark.parametrize(
    "text",
    [
        "no call",
        "<tool_call>{not json}</tool_call>",
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "query_database_by_sql", "arguments": "SELECT 1"}</tool_call>',
        '<tool_call>{"name": "query_database_by_sql", "arguments": {"sql": "SELECT 1"}',
    ],
)
def test_what_is_not_a_whole_call_is_no_call(text: str) -> None:
    assert parse_reply(text, "hermes").calls == ()


BARE = '{"name": "query_database_by_sql", "arguments": {"sql": "SELECT 1"}}'


@pytest.mark.parametrize("text", [BARE, f"```json\n{BARE}\n```", f"  ```\n{BARE}```\n"])
def test_a_reply_that_is_nothing_but_a_call_is_a_call(policy: Policy, text: str) -> None:
    reply = ChatEncoder(policy.tokenizer, policy.end_id).reply(ids_of(policy, text))
    assert reply["tool_calls"][0]["function"]["name"] == "query_database_by_sql"
    assert reply["content"] is None


@pytest.mark.parametrize("text", [f"I would call {BARE}", f"{BARE} and then answer", '{"name": "x"}', "[1, 2]"])
def test_json_inside_a_sentence_stays_text(text: str) -> None:
    assert parse_reply(text, "hermes").calls == ()


@given(sql=st.text(max_size=80), name=st.text(min_size=1, max_size=10))
def test_a_call_survives_the_round_trip(sql: str, name: str) -> None:
    block = json.dumps({"name": name, "arguments": {"sql": sql}}, ensure_ascii=False)
    if "</tool_call>" in block:
        return
    (call,) = parse_reply(f"thinking <tool_call>\n{block}\n</tool_call> done", "hermes").calls
    assert (call.name, call.arguments) == (name, {"sql": sql})
