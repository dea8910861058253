"""Memory that ran out is named, whichever part asked for it, and no other error is taken for that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from sql_agent.errors import ConfigError, TrainingError
from sql_agent.system.resources import named_memory_errors


@pytest.mark.parametrize("ask", [lambda: bytearray(1 << 62), lambda: torch.empty(1 << 50, dtype=torch.uint8)])
def test_more_memory_than_there_is_ends_a_run_with_a_line_and_advice(ask: Callable[[], object]) -> None:
    with (
        pytest.raises(TrainingError, match="the training process ran out of memory") as caught,
        named_memory_errors(),
    ):
        ask()
    assert caught.value.hint and "train.micro_batch" in caught.value.hint


@pytest.mark.parametrize(
    "error",
    [
        SystemError("<built-in method> error return without exception set"),
        RuntimeError("can't start new thread"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
)
def test_an_error_of_a_library_that_means_out_of_memory_is_named_too(error: Exception) -> None:
    with pytest.raises(TrainingError, match="ran out of memory"), named_memory_errors():
        raise error


@pytest.mark.parametrize(
    "error", [ImportError("no module"), RuntimeError("shapes differ"), FileNotFoundError("x"), ConfigError("wrong")]
)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, named_memory_errors():
        raise error
    assert caught.value is error
