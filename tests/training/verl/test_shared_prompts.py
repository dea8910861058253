"""verl's update computes a prompt that several sequences share once, and gets the numbers of separate sequences."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch

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


@pytest.fixture
def forward(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    names = ("verl", "verl.models", "verl.models.transformers", "verl.models.transformers.dense_common",
             "verl.utils", "verl.utils.experimental", "verl.utils.experimental.torch_functional")  # fmt: skip
    modules: dict[str, Any] = {name: ModuleType(name) for name in names}
    common = modules["verl.models.transformers.dense_common"]
    common.forward_with_torch_backend = lambda *_args, **_options: "verl's own"
    common.CausalLMOutputForPPO = Output
    modules["verl.models.transformers"].dense_common = common
    modules["verl.utils.experimental.torch_functional"].FusedLinearForPPO = Head
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "sql_agent.training.verl.shared_prompts", raising=False)
    import_module("sql_agent.training.verl.shared_prompts")
    yield common.forward_with_torch_backend
    sys.modules.pop("sql_agent.training.verl.shared_prompts", None)


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


def test_another_attention_keeps_verls_own_forward_pass(forward: Any, policy: Policy) -> None:
    assert forward(policy.model, **packed(SEQUENCES)) == "verl's own"


def test_the_configuration_names_the_attention_that_is_registered() -> None:
    assert PACKED_ATTENTION == attention.NAME
