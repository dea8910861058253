"""verl's replay buffers, asked more often."""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

# verl looks every 2 s whether a step's rollouts are in. That is a third of a step of a small model.
_POLL_S = 0.05
_METRIC = "reward"  # verl's name for what it compares within a group


class PromptReplayBuffer(ReplayBuffer):  # type: ignore[misc]
    """For trainer mode `sync`; a question all of whose rollouts were lost is replaced by another.

    With `informative_only` so is one whose rollouts all earned the same (Yu et al. 2025, arXiv:2503.14476, 3.2).
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            **kwargs,
            poll_interval=_POLL_S,
            sync_refill_failed_groups=True,
            gen_batch_size=1,
            train_batch_size=kwargs["sampler_kwargs"].questions_per_step,
            filter_groups_metric=_metric(kwargs["sampler_kwargs"]),
        )


class PromptReplayBufferAsync(ReplayBufferAsync):  # type: ignore[misc]
    """For the asynchronous trainer modes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, poll_interval=_POLL_S, filter_groups_metric=_metric(kwargs["sampler_kwargs"]))


def _metric(options: Any) -> str | None:
    return _METRIC if options.informative_only else None
