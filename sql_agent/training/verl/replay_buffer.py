"""Configure verl's replay buffers: poll them more often, and replace questions that GRPO cannot learn from."""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

# verl polls every 2 s whether a step's rollouts have ended, which is a third of the step time of a small model.
_POLL_S = 0.05
_METRIC = "reward"  # verl's name for what it compares within a group


class PromptReplayBuffer(ReplayBuffer):  # type: ignore[misc]
    """Replaces a question when all of its rollouts were lost, in trainer mode `sync`.

    With `informative_only` it also replaces a question whose rollouts all got the same reward (dynamic sampling, Yu et
    al. 2025, arXiv:2503.14476, 3.2).
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
    """Leaves out groups whose rollouts all got the same reward with `informative_only`, in the asynchronous modes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, poll_interval=_POLL_S, filter_groups_metric=_metric(kwargs["sampler_kwargs"]))


def _metric(options: Any) -> str | None:
    return _METRIC if options.informative_only else None
