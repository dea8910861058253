"""Versions that do not go together are named with what to do; those that were seen to work are not."""

from __future__ import annotations

import pytest

from sql_agent.cli.gpu_stack import bad_combinations, flash_attention_problem

WORKS = {"verl": "0.9.1", "vllm": "0.24.0", "torch": "2.11.0", "transformers": "5.9.0"}


def test_the_versions_that_were_seen_to_work_are_no_problem() -> None:
    assert not bad_combinations(WORKS, cuda="13.0", driver="580.82.07")
    assert not bad_combinations({"torch": "2.13.0+cpu"}, cuda=None, driver=None)


@pytest.mark.parametrize(
    ("versions", "cuda", "driver", "problem"),
    [
        (WORKS | {"torch": "2.13.0"}, "13.0", "580.82", "vllm 0.24.0 needs torch 2.11"),
        (WORKS | {"vllm": "0.11.0"}, "13.0", "580.82", "verl 0.9.1 needs vllm 0.24"),
        (WORKS, "13.0", "535.104", "driver 535.104 is too old for CUDA 13.0"),
        (WORKS, None, "580.82", "CPU build"),
    ],
)
def test_a_bad_combination_is_named(versions: dict[str, str], cuda: str | None, driver: str, problem: str) -> None:
    found = bad_combinations(versions, cuda=cuda, driver=driver)
    assert any(problem in text and advice for text, advice in found)


def test_a_flash_attn_of_another_torch_is_recognised_by_its_missing_symbol() -> None:
    text, advice = flash_attention_problem(ImportError("flash_attn_2_cuda.so: undefined symbol: _ZN3c105"))
    assert "built for another torch" in text and "uninstall" in advice
