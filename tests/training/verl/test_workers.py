"""verl's workers compute a shared prompt once, with the numbers of separate sequences, and keep adapters in fp32."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from sql_agent.training.policy import attention
from sql_agent.training.policy.model import Policy
from sql_agent.training.verl.config import PACKED_ATTENTION

PROMPT = list(range(10, 60))
SEQUENCES = [[*PROMPT, 5, 6, 7], [*PROMPT, 5, 8], [*PROMPT[:30], 9, 9, 9, 2]]


@dataclass
class Output:
    log_probs: torch.Tensor
    entropy: torch.Tensor


class Head(torch.nn.Module):  # type: ignore[misc]
    """Log-probabilities and entropies, as verl's fused kernel computes them."""

    seen: ClassVar[list[int]] = []  # tokens of each call

    def __init__(self, impl_backend: str) -> None:
        super().__init__()

    def forward(
        self, states: torch.Tensor, weights: torch.Tensor, labels: torch.Tensor, temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        Head.seen.append(len(states))
        logprobs = torch.log_softmax(states @ weights.T / temperature, -1)
        return logprobs.gather(-1, labels[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(-1)


class Engine:
    """Adds adapters as verl does, in the dtype of the other weights."""

    def __init__(self, strategy: str) -> None:
        self.engine_config = SimpleNamespace(strategy=strategy)
        self.module = SimpleNamespace(config=SimpleNamespace())

    def prepare_model_inputs(self, micro_batch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        return packed([each.tolist() for each in micro_batch["input_ids"].unbind()]), {}

    def forward_backward_batch(self, data: Any, dp_group: Any = None) -> Any:
        return sys.modules["verl.workers.engine.fsdp.transformer_impl"].prepare_micro_batches(data, dp_group=dp_group)

    def _build_lora_module(self, module: Any) -> Any:
        adapters = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
        return get_peft_model(module, adapters).to(torch.bfloat16)


def dealt(lengths: list[int], parts: int, *, equal_size: bool) -> list[list[int]]:
    assert 0 < parts <= len(lengths) and not equal_size
    return [list(range(part, len(lengths), parts)) for part in range(parts)]


@pytest.fixture
def forward(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    fused, engine = "verl.utils.experimental.torch_functional", "verl.workers.engine.fsdp.transformer_impl"
    device, balancing, tensors = (f"verl.utils.{name}" for name in ("device", "seqlen_balancing", "tensordict_utils"))
    used = ("verl.models.transformers.dense_common", fused, engine, device, balancing, tensors)
    parts = [name.split(".") for name in used]
    names = {".".join(part[:n]) for part in parts for n in range(1, len(part) + 1)}
    modules: dict[str, Any] = {name: ModuleType(name) for name in names}
    modules[engine].FSDPEngine = modules[engine].FSDPEngineWithLMHead = Engine
    modules[engine].prepare_micro_batches = lambda *_args, **_options: "verl's own"
    modules["verl.workers.engine.fsdp"].transformer_impl = modules[engine]
    modules[device].get_device_name = lambda: "cpu"
    modules[balancing].get_seqlen_balanced_partitions = dealt
    modules[tensors].get_non_tensor_data = lambda data, key, default: data.get(key, default)
    modules[tensors].index_select_tensor_dict = lambda data, places: [data["input_ids"][each] for each in places]
    common = modules["verl.models.transformers.dense_common"]
    common.forward_with_torch_backend = lambda *_args, **_options: "verl's own"
    common.CausalLMOutputForPPO = Output
    modules["verl.models.transformers"].dense_common = common
    modules[fused].FusedLinearForPPO = Head
    for name in ("_build_lora_module", "prepare_model_inputs", "forward_backward_batch"):
        monkeypatch.setattr(Engine, name, getattr(Engine, name))  # restored afterwards
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "sql_agent.training.verl.workers", raising=False)
    import_module("sql_agent.training.verl.workers")
    yield common.forward_with_torch_backend
    sys.modules.pop("sql_agent.training.verl.workers", None)


def packed(sequences: list[list[int]]) -> dict[str, torch.Tensor]:
    ids = torch.tensor([[token for s in sequences for token in s]])
    return {
        "input_ids": ids,
        "position_ids": torch.cat([torch.arange(len(s)) for s in sequences])[None],
        "shift_labels": torch.roll(ids, -1, 1),
    }


def test_shared_prompts_give_what_separate_sequences_give(forward: Any, policy: Policy) -> None:
    attention.register()
    policy.model.set_attn_implementation(attention.NAME)
    try:
        together = forward(policy.model, **packed(SEQUENCES), temperature=0.7)
        tokens = Head.seen[-1]
        apart = [forward(policy.model, **packed([each]), temperature=0.7) for each in SEQUENCES]
    finally:
        policy.model.set_attn_implementation("sdpa")
    assert tokens < sum(map(len, SEQUENCES))
    start = 0
    for one, sequence in zip(apart, SEQUENCES, strict=True):
        # The label of a sequence's last token is the first token of the next one, which nothing reads.
        inner = slice(start, start + len(sequence) - 1)
        torch.testing.assert_close(together.log_probs[0, inner], one.log_probs[0, :-1], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(together.entropy[0, inner], one.entropy[0, :-1], atol=1e-5, rtol=1e-4)
        start += len(sequence)


def test_logits_are_computed_only_for_what_the_policy_wrote_and_gradients_are_the_same(
    forward: Any, policy: Policy
) -> None:
    def nested(rows: list[list[int]]) -> torch.Tensor:
        return torch.nested.nested_tensor(rows, layout=torch.jagged)

    masks = [[1, 0, 1], [1, 1], [1, 1, 0, 1]]  # of the responses; tool results have 0
    inputs, _ = Engine("fsdp").prepare_model_inputs({"input_ids": nested(SEQUENCES), "loss_mask": nested(masks)})
    trained = inputs["is_trained"]
    # verl reads the value of a response token at the index of the token before.
    starts = [end - len(mask) - 1 for end, mask in zip(accumulate(map(len, SEQUENCES)), masks, strict=True)]
    places = [start + i for start, mask in zip(starts, masks, strict=True) for i, written in enumerate(mask) if written]
    assert trained.nonzero().flatten().tolist() == places and trained.shape == inputs["input_ids"][0].shape
    attention.register()
    policy.model.set_attn_implementation(attention.NAME)
    found = []
    try:
        for given in (inputs, inputs | {"is_trained": None}):
            out = forward(policy.model, **given, temperature=0.7)
            policy.model.zero_grad()
            (out.log_probs[0][trained].sum() + out.entropy[0][trained].sum()).backward()
            found.append((Head.seen[-1], out, [p.grad.clone() for p in policy.model.parameters()]))
    finally:
        policy.model.set_attn_implementation("sdpa")
    (few, of_trained, gradients), (many, of_all, expected) = found
    assert few <= trained.sum() < many
    torch.testing.assert_close(of_trained.log_probs[0][trained], of_all.log_probs[0][trained])
    torch.testing.assert_close(gradients, expected, atol=1e-5, rtol=1e-4)


def micro_batches(limit: int, attention_name: str, **data: Any) -> Any:
    """The micro-batches of 12 sequences with a common prompt of 50 tokens and 1 to 12 tokens of their own."""
    rows = [[*PROMPT, *range(own, 2 * own)] for own in range(1, 13)]
    given = {"input_ids": torch.nested.nested_tensor(rows, layout=torch.jagged), "max_token_len_per_gpu": limit} | data
    engine = Engine("fsdp")
    engine.module.config._attn_implementation = attention_name
    return engine.forward_backward_batch(given)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What another rank contributes to one `all_reduce` after another; 0 once the list is empty."""
    others: list[int] = []

    def all_reduce(number: torch.Tensor, **_options: Any) -> None:
        number.clamp_(min=others.pop(0) if others else 0)

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    return others


@pytest.mark.usefixtures("forward")
@pytest.mark.parametrize("limit", [66, 67, 80, 187, 1000])
def test_a_micro_batch_is_limited_by_its_tokens_with_the_shared_prompt_once(limit: int, ranks: list[int]) -> None:
    batches, places = micro_batches(limit, attention.NAME)
    assert sorted(place for part in places for place in part) == list(range(12))
    assert [len(batch) for batch in batches] == [len(part) for part in places]
    tokens = [len(attention.pack([row.tolist() for row in batch]).kept) for batch in batches]
    assert max(tokens) <= limit and tokens == sorted(tokens, reverse=True)
    if limit >= 187:
        assert len(batches) == 1, "49 tokens, and 6 to 17 of each sequence; apart they are 678"


@pytest.mark.usefixtures("forward")
def test_all_ranks_have_as_many_micro_batches_as_the_one_that_needs_the_most(ranks: list[int]) -> None:
    ranks += [3, 0]
    assert len(micro_batches(1000, attention.NAME)[0]) == 3
    ranks += [3, 1, 0]  # the other rank's three are too large
    assert len(micro_batches(1000, attention.NAME)[0]) == 4


@pytest.mark.usefixtures("forward", "ranks")
def test_what_is_not_packed_is_split_by_verl() -> None:
    assert micro_batches(1000, "sdpa") == "verl's own"
    assert micro_batches(1000, attention.NAME, sp_size=2) == "verl's own"
    assert micro_batches(1000, attention.NAME, use_dynamic_bsz=False) == "verl's own"


def test_another_attention_keeps_verls_own_forward_pass(forward: Any, policy: Policy) -> None:
    assert forward(policy.model, **packed(SEQUENCES)) == "verl's own"


def test_the_configuration_names_the_attention_that_is_registered() -> None:
    assert PACKED_ATTENTION == attention.NAME


@pytest.mark.usefixtures("forward")
@pytest.mark.parametrize(("strategy", "dtype"), [("fsdp", torch.float32), ("fsdp2", torch.bfloat16)])
def test_adapters_of_fsdp1_are_fp32_and_the_weights_that_they_leave_stay_in_bf16(
    tiny_model_folder: Path, strategy: str, dtype: torch.dtype
) -> None:
    base = AutoModelForCausalLM.from_pretrained(tiny_model_folder, dtype=torch.bfloat16)
    parameters = list(Engine(strategy)._build_lora_module(base).parameters())
    assert {p.dtype for p in parameters if p.requires_grad} == {dtype}
    assert {p.dtype for p in parameters if not p.requires_grad} == {torch.bfloat16}
