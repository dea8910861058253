"""Sharing a prompt between rows changes the cost, never the numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sql_agent.errors import ModelError
from sql_agent.rollouts.trajectory import TokenSequence
from sql_agent.training.local.policy_service import prepare_torch
from sql_agent.training.local.sampler import Request, Sampler
from sql_agent.training.policy import attention
from sql_agent.training.policy.attention import pack
from sql_agent.training.policy.forward import SharedPrefix, common_prefix, token_logprobs
from sql_agent.training.policy.model import Policy, load_policy
from tests.support.sampling import sample

PREFIX = tuple(range(10, 110))


def one_by_one(policy: Policy, sequence: TokenSequence) -> torch.Tensor:
    ids = torch.tensor([sequence.prompt_ids + sequence.response_ids])
    logprobs = torch.log_softmax(policy.model(input_ids=ids, use_cache=False).logits[0].float(), -1)
    start = len(sequence.prompt_ids)
    positions = torch.arange(start - 1, start - 1 + len(sequence.response_ids))
    return logprobs[positions, torch.tensor(sequence.response_ids)] * torch.tensor(sequence.response_mask)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_shared_prompt_gives_the_logprobs_and_gradients_of_separate_rows(
    tiny_model_folder: Path, attention: str
) -> None:
    policy = load_policy(str(tiny_model_folder), cache_dir=tiny_model_folder)
    policy.model.set_attn_implementation(attention)
    batch = [
        TokenSequence((*PREFIX, 5, 6), (7, 8, 9, 2), (1, 0, 1, 1)),
        TokenSequence((*PREFIX, 5), (30, 31), (1, 1)),
        TokenSequence(PREFIX, (40, 41, 42), (0, 0, 1)),
    ]
    prefix = SharedPrefix.of(policy.model, batch, bf16=False)
    assert prefix is not None and prefix.tokens == len(PREFIX) - 1, "the shortest prompt keeps a token of its own"
    values, mask = token_logprobs(policy.model, batch, bf16=False, prefix=prefix)
    separate = [one_by_one(policy, s) for s in batch]
    for row, expected, sequence in zip(values, separate, batch, strict=True):
        torch.testing.assert_close(row[: len(sequence.response_ids)], expected, atol=1e-5, rtol=1e-4)
    assert mask.sum() == sum(s.sampled for s in batch)

    def gradients() -> list[torch.Tensor]:
        layers = policy.model.model.layers
        grads = [layer.self_attn.k_proj.weight.grad for layer in layers]
        policy.model.zero_grad()
        return [grad for grad in grads if grad is not None]

    for frozen in (0, 1):  # layers, as in a cheap update
        policy.model.get_input_embeddings().requires_grad_(not frozen)
        policy.model.model.layers[:frozen].requires_grad_(False)
        prefix = SharedPrefix.of(policy.model, batch, bf16=False)
        assert prefix is not None
        for micro_batch in (batch[:2], batch[2:]):
            token_logprobs(policy.model, micro_batch, bf16=False, prefix=prefix)[0].sum().backward()
        prefix.backward()
        together = gradients()
        torch.stack([one_by_one(policy, s).sum() for s in batch]).sum().backward()
        apart = gradients()
        assert len(together) == len(apart) == 2 - frozen
        for one, other in zip(together, apart, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


def test_what_was_sampled_at_a_temperature_is_as_likely_as_it_was_there(policy: Policy) -> None:
    sequence = TokenSequence(PREFIX, (40, 41, 42), (1, 0, 1))
    values, _ = token_logprobs(policy.model, [sequence], bf16=False, temperature=0.5)
    logits = policy.model(input_ids=torch.tensor([(*PREFIX, 40, 41, 42)])).logits[0, len(PREFIX) - 1 : -1]
    expected = torch.log_softmax(2 * logits, -1)[torch.arange(3), torch.tensor([40, 41, 42])]
    torch.testing.assert_close(values[0], expected * torch.tensor([1.0, 0.0, 1.0]), atol=1e-5, rtol=1e-4)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def greedy(policy: Policy, prompt: tuple[int, ...], length: int) -> tuple[int, ...]:
    ids = list(prompt)
    for _ in range(length):
        ids.append(int(policy.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] in policy.stop_ids:
            break
    return tuple(ids[len(prompt) :])


@settings(max_examples=15)
@given(tails=st.lists(st.lists(st.integers(3, 200), min_size=1, max_size=12), min_size=1, max_size=5))
def test_a_batch_samples_greedily_what_each_prompt_alone_would(policy: Policy, tails: list[list[int]]) -> None:
    prompts = [PREFIX + tuple(tail) for tail in tails]
    sampler = Sampler(policy, seed=0)
    for _ in range(2):  # the second time the shared start comes from the kept cache
        sampled = sample(sampler, [Request(p, max_tokens=6, temperature=0.0) for p in prompts])
        assert [s.token_ids for s in sampled] == [greedy(policy, p, 6) for p in prompts]


@settings(max_examples=25)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 6),
            st.booleans(),
            st.builds(list.__mul__, st.lists(st.integers(3, 200), min_size=1, max_size=9), st.sampled_from([1, 40])),
            st.integers(1, 7),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_rows_that_join_and_leave_at_any_time_do_not_disturb_each_other(
    policy: Policy, rows: list[tuple[int, bool, list[int], int]]
) -> None:
    sampler = Sampler(policy, seed=0)
    waiting = [
        (
            delay,
            Request((PREFIX if shared else PREFIX[50:]) + tuple(tail), max_tokens=length, temperature=0.0),
        )
        for delay, shared, tail, length in rows
    ]
    done = {}
    tick = 0
    while waiting or sampler.active:
        fresh = [request for delay, request in waiting if delay <= tick]
        waiting = [(delay, request) for delay, request in waiting if delay > tick]
        if fresh:
            sampler.admit(fresh)
        for request, sampled in sampler.step():
            done[request] = sampled.token_ids
        tick += 1
    assert len(done) == len(rows)
    for request, token_ids in done.items():
        assert token_ids == greedy(policy, request.prompt_ids, request.max_tokens)


def test_one_long_prompt_does_not_make_the_others_as_long(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[int] = []
    run = policy.model.model.forward

    def counted(**inputs: Any) -> Any:
        passed.append(inputs["input_ids"].numel())
        return run(**inputs)

    monkeypatch.setattr(policy.model.model, "forward", counted)
    tails = [*([5, number] for number in range(20)), range(3, 203)]
    Sampler(policy, seed=0).admit([Request((*PREFIX, *tail), 1, temperature=0.0) for tail in tails])
    assert sum(passed) < len(PREFIX) + 2 * sum(map(len, tails))


def test_a_long_prompt_beside_one_row_needs_no_room_for_the_rows_that_have_ended(policy: Policy) -> None:
    sampler = Sampler(policy, seed=0)
    sampler.admit([Request((*PREFIX, n), max_tokens=1 + 8 * (n == 5), temperature=0.0) for n in range(5, 45)])
    sampler.step()
    assert sampler.active == 1
    sampler.admit([Request((*PREFIX, *range(3, 203)), max_tokens=1, temperature=0.0)])
    assert all(len(layer.keys) == 2 for layer in sampler._cache._cache.layers)


def test_a_second_turn_is_sampled_as_if_the_first_had_not_been(policy: Policy) -> None:
    sampler = Sampler(policy, seed=0)
    first = [Request((*PREFIX, i), max_tokens=4 + i % 3, temperature=0.0) for i in range(5, 11)]
    turns = sample(sampler, first)
    more = [
        (*r.prompt_ids, *turn.token_ids, *range(30, 31 + i))
        for i, (r, turn) in enumerate(zip(first, turns, strict=True))
    ]
    prompts = [*more, (*PREFIX, 120, 121)]  # and one that has no first turn
    sampled = sample(sampler, [Request(p, max_tokens=6, temperature=0.0) for p in prompts])
    assert [s.token_ids for s in sampled] == [greedy(policy, p, 6) for p in prompts]


def test_after_the_weights_changed_nothing_of_the_old_ones_is_used(tiny_model_folder: Path) -> None:
    policy = load_policy(str(tiny_model_folder), cache_dir=tiny_model_folder)
    sampler = Sampler(policy, seed=0)
    prompts = [(*PREFIX, i) for i in (5, 6)]
    sample(sampler, [Request(p, max_tokens=8, temperature=0.0) for p in prompts])
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    sampler.weights_changed()
    sampled = sample(sampler, [Request(p, max_tokens=8, temperature=0.0) for p in prompts])
    assert [s.token_ids for s in sampled] == [greedy(policy, p, 8) for p in prompts]


def test_sampling_follows_the_temperature(policy: Policy) -> None:
    sampler = Sampler(policy, seed=0)
    hot = [Request((*PREFIX, 5), max_tokens=4, temperature=5.0) for _ in range(6)]
    assert len({s.token_ids for s in sample(sampler, hot)}) > 1
    cold = [Request((*PREFIX, 5), max_tokens=4, temperature=1e-4) for _ in range(6)]
    assert {s.token_ids for s in sample(sampler, cold)} == {greedy(policy, (*PREFIX, 5), 4)}


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_common_prefix_is_shared_by_all_and_leaves_a_token_of_each(head: list[int], tails: list[list[int]]) -> None:
    prompts = [tuple(head + tail) for tail in tails]
    length = common_prefix(prompts)
    assert len({p[:length] for p in prompts}) == 1
    assert all(len(p) > length for p in prompts)
    longer = {p[: length + 1] for p in prompts}
    assert len(longer) > 1 or any(len(p) == length + 1 for p in prompts)


def test_all_cores_are_taken_where_the_system_has_no_affinity_as_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delattr("os.sched_getaffinity")
    try:
        prepare_torch()
        assert torch.get_num_threads() == os.cpu_count()
    finally:
        torch.set_num_threads(before)


def test_a_path_without_a_model_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no model folder"):
        load_policy(str(tmp_path / "none"), cache_dir=tmp_path)


@settings(max_examples=40)
@given(
    groups=st.lists(
        st.tuples(
            st.integers(0, 60),
            st.lists(st.lists(st.integers(3, 6), min_size=1, max_size=40), min_size=1, max_size=4),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_packed_row_gives_the_logprobs_and_gradients_of_separate_rows(
    policy: Policy, groups: list[tuple[int, list[list[int]]]]
) -> None:
    batch = [
        TokenSequence((9, *PREFIX[shared:], 11), (*tail, 2), (*(place % 3 != 1 for place in range(len(tail))), 1))
        for shared, tails in groups
        for tail in tails
    ]
    attention.register()
    policy.model.set_attn_implementation(attention.NAME)
    try:
        values, _ = token_logprobs(policy.model, batch, bf16=False)
        policy.model.zero_grad()
        values.sum().backward()
        packed = policy.model.model.layers[0].self_attn.k_proj.weight.grad.clone()
    finally:
        policy.model.set_attn_implementation("sdpa")
    apart = [one_by_one(policy, s) for s in batch]
    for row, expected in zip(values, apart, strict=True):
        torch.testing.assert_close(row[: len(expected)], expected, atol=1e-4, rtol=1e-3)
    policy.model.zero_grad()
    torch.stack([each.sum() for each in apart]).sum().backward()
    torch.testing.assert_close(packed, policy.model.model.layers[0].self_attn.k_proj.weight.grad, atol=1e-3, rtol=1e-2)
    policy.model.zero_grad()


@settings(max_examples=100)
@given(sequences=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=60), min_size=1, max_size=8))
def test_a_packing_keeps_each_sequence_and_each_next_token(sequences: list[list[int]]) -> None:
    packing = pack(sequences)
    tokens = [token for sequence in sequences for token in sequence]
    following = [after for sequence in sequences for after in (*sequence[1:], -1)]
    kept, places = packing.kept.tolist(), packing.places.tolist()
    assert [tokens[kept[place]] for place in places] == tokens
    assert [following[kept[place]] for place in places] == following
    assert len(kept) <= len(tokens)
    assert sum(s.end - s.start for s in packing.segments) == len(kept)


def test_a_prompt_that_all_sequences_share_stands_once_in_a_packed_row() -> None:
    sequences = [[*PREFIX, 3, number, 5] for number in range(300, 308)]
    assert len(pack(sequences).kept) == len(PREFIX) + 8 * 3


def test_a_row_with_a_shared_prefix_whose_mark_is_lost_is_refused() -> None:
    q = torch.zeros(1, 2, 5, 4)
    with pytest.raises(ValueError, match="jump inside a sequence"):
        attention.packed_attention(torch.nn.Identity(), q, q, q, None, position_ids=torch.tensor([[0, 1, 2, 1, 2]]))
