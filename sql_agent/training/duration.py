"""Estimate the duration of a run from measured runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sql_agent.config.settings import Settings

# The speed of N GPUs is N to this power. Measured with four GPUs and 512 rollouts of 0.5B: 1.44 times the speed of one
# with `sync`, 2.17 times with `separate_async` (docs/lab/2026-11-28.md).
_SPEED_OF_GPUS = {"sync": 0.27, "colocate_async": 0.27, "separate_async": 0.56}
_START_S = {"verl": 90.0, "local": 20.0}
_TUNING_START_S = {"verl": 30.0, "local": 0.0}  # imports, and the first demonstrations
_DEMONSTRATION_S = {"verl": 0.009, "local": 0.9}  # seconds for a demonstration, with the smallest measured model
_SAVE_S = {"verl": 8.0, "local": 2.0}  # seconds for one checkpoint of the smallest measured model


@dataclass(frozen=True)
class Measured:
    """A measured run, with the median seconds that a step took for its `rollouts` rollouts and for its update."""

    backend: str
    workflow: str
    parameters: float
    rollouts: int
    rollout_s: float
    update_s: float
    source: str


_MEASURED = (
    Measured("verl", "react", 0.494e9, 512, 4.3, 4.1, "0.5B with react, an H200 (docs/lab/2026-11-28.md)"),
    Measured("verl", "react", 1.544e9, 256, 2.8, 3.1, "1.5B with react, an H200 (docs/lab/2026-11-28.md)"),
    Measured("verl", "check-rewrite", 0.494e9, 512, 7.9, 6.6, "0.5B on Spider, an H100 (docs/lab/2026-11-28.md)"),
    Measured("verl", "check-rewrite", 1.544e9, 512, 9.0, 9.7, "1.5B on Spider, an H100 (docs/lab/2026-11-28.md)"),
    Measured("local", "react", 0.135e9, 96, 32.0, 9.0, "135M, two cores (docs/lab/2026-11-23.md)"),
)


@dataclass(frozen=True)
class Duration:
    """The estimated seconds of a step's rollouts, of its update and of each part of a run.

    `source` names the measured run from which the seconds were extrapolated.
    """

    rollout_s: float
    update_s: float
    parts: dict[str, float]
    source: str

    @property
    def total_s(self) -> float:
        return sum(self.parts.values())


def estimate(settings: Settings, parameters: int) -> Duration:
    """Estimate the duration of a run with `settings`; the model has `parameters` parameters.

    The seconds of the nearest measured run are scaled. The time of rollouts grows with the square root of the
    parameters, because sampling also waits for memory and for the tool; the time of the update grows with the
    parameters. Both times grow with the number of rollouts and shrink with the number of GPUs.
    """
    train, backend = settings.train, settings.backend
    nearest = _nearest(settings, parameters)
    size = parameters / nearest.parameters
    gpus = settings.verl.n_gpus * settings.verl.nnodes if backend == "verl" else 1
    speed = gpus ** _SPEED_OF_GPUS[settings.verl.trainer_mode]
    share = train.questions_per_step * train.group_size / nearest.rollouts / speed
    rollout_s, update_s = nearest.rollout_s * math.sqrt(size) * share, nearest.update_s * size * share
    asked = settings.data.val_questions + settings.data.natural_questions
    validations = 2 + (train.steps // settings.verl.test_every if settings.verl.test_every else 0)
    smallest = min(m.parameters for m in _MEASURED if m.backend == backend)
    tuning = settings.sft.steps * settings.sft.batch * _DEMONSTRATION_S[backend] * parameters / smallest
    parts = {
        "start": _START_S[backend],
        "fine-tuning": _TUNING_START_S[backend] + tuning if tuning else 0.0,
        f"{train.steps} steps": train.steps * (rollout_s + update_s),
        f"{validations} validations": validations * asked * nearest.rollout_s * math.sqrt(size) / nearest.rollouts,
        "checkpoints": (train.steps // train.save_every + 1) * _SAVE_S[backend] * parameters / smallest,
    }
    return Duration(rollout_s, update_s, parts, nearest.source)


def _nearest(settings: Settings, parameters: int) -> Measured:
    """Return the backend's measured run nearest in parameters; runs with the same workflow are preferred."""
    of_backend = [run for run in _MEASURED if run.backend == settings.backend]
    alike = [run for run in of_backend if run.workflow == settings.agent.workflow] or of_backend
    return min(alike, key=lambda run: abs(math.log(run.parameters / parameters)))
