"""What each step of a verl run asked for and got: counts, stop rules, and the lines of the run's files."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from sql_agent.backends.judge_failures import check_judge_failures
from sql_agent.config.settings import Settings
from sql_agent.errors import NoTripletsError, TrainingError
from sql_agent.rl.advantages import group_advantages
from sql_agent.rl.metrics import drop_reasons, informative_groups, summary
from sql_agent.rl.rollouts import FinishedRollout
from sql_agent.rl.scheduler import Mode, RolloutRequest
from sql_agent.tracking.console import Ui
from sql_agent.tracking.run_log import RunLog

_UPDATE_STAGES = ("old_log_prob", "ref", "adv", "update_actor", "update_weights")


@dataclass
class _Entry:
    groups: Counter[str] = field(default_factory=Counter)  # tries by group
    finished: list[FinishedRollout] = field(default_factory=list)

    @property
    def enqueued(self) -> int:
        return self.groups.total()

    def take_ended(self) -> _Entry:
        """Move out the groups of which no try is under way."""
        running = self.groups - Counter(r.group for r in self.finished)
        ended = _Entry(
            Counter({group: tries for group, tries in self.groups.items() if group not in running}),
            [r for r in self.finished if r.group not in running],
        )
        self.groups -= ended.groups
        self.finished = [r for r in self.finished if r.group in running]
        return ended


class StepMonitor:
    """Listens to the scheduler. `failure` is set as soon as a step can no longer be worth finishing.

    A lost rollout is run again, and that is fine now and then; when more than the accepted share of those that ended
    were lost, something is broken and the run stops with the reasons.
    """

    def __init__(self, settings: Settings, log: RunLog, ui: Ui, *, val_questions: int) -> None:
        self._settings = settings
        self._log = log
        self._ui = ui
        self._expected: dict[Mode, int] = {
            "train": settings.train.questions_per_step * settings.train.group_size,
            "val": val_questions,
        }
        self._entries: dict[tuple[Mode, int], _Entry] = defaultdict(_Entry)
        self.failure: TrainingError | None = None
        self.last_event = time.monotonic()

    def enqueued(self, request: RolloutRequest) -> None:
        self.last_event = time.monotonic()
        entry = self._entries[request.mode, request.step]
        entry.groups[request.group] += 1
        limit = self._settings.verl.dynamic_sampling
        if (
            self.failure is None
            and limit
            and request.mode == "train"
            and entry.enqueued > limit * self._expected["train"]
        ):
            self._log.rollouts(request.step, request.mode, entry.finished, group_advantages(entry.finished))
            self.failure = _nothing_differs(request.step, entry, self._settings)

    def finished(self, request: RolloutRequest, rollout: FinishedRollout) -> None:
        self.last_event = time.monotonic()
        entry = self._entries[request.mode, request.step]
        entry.finished.append(rollout)
        if rollout.dropped is not None and self.failure is None:
            self.failure = self._failure(request, entry)

    def close(self, step: int, values: Mapping[str, float]) -> None:
        """Write what ended up to `step`, with verl's own metrics of it; both of training and of validation.

        In the asynchronous trainer modes groups are under way while a step ends; they belong to a later one.
        """
        validated = self._entries.pop(("val", step), None)
        if validated is not None:
            measured = summary(validated.finished, enqueued=validated.enqueued)
            self._log.rollouts(step, "val", validated.finished)
            self._log.validation(step, measured, questions=self._expected["val"])
            self._ui.validation(step, measured, questions=self._expected["val"])
        trained = self._ended(step)
        if step > 0:  # 0 is the validation before training
            self._log.rollouts(step, "train", trained.finished, group_advantages(trained.finished))
            measured = summary(trained.finished, enqueued=trained.enqueued) | step_metrics(values)
            self._log.metrics(step, measured)
            self._ui.step(step, self._settings.train.steps, measured)

    def _ended(self, step: int) -> _Entry:
        ended = _Entry()
        for key in sorted(key for key in self._entries if key[0] == "train" and key[1] <= step):
            taken = self._entries[key].take_ended()
            ended.groups += taken.groups
            ended.finished += taken.finished
            if not self._entries[key].groups:
                del self._entries[key]
        return ended

    def _failure(self, request: RolloutRequest, entry: _Entry) -> TrainingError | None:
        where = f"step {request.step} ({request.mode})"
        expected = self._expected[request.mode]
        judged = check_judge_failures(self._settings, entry.finished, expected=expected, where=where)
        lost = sum(r.dropped is not None for r in entry.finished)
        if judged is None and lost <= self._settings.runner.max_failed_share * expected:
            return None
        reasons = drop_reasons(entry.finished)
        hint = f"see {self._log.folder}/rollouts.jsonl, mend the cause, then --resume"
        self._log.rollouts(request.step, request.mode, entry.finished)
        if judged is not None:
            return judged
        if not any(r.triplets for r in entry.finished):
            return NoTripletsError(f"{where}: zero triplets from {len(entry.finished)} rollouts: {reasons}", hint=hint)
        return TrainingError(
            f"{where}: {lost} rollouts were lost, more than runner.max_failed_share allows: {reasons}", hint=hint
        )


def _nothing_differs(step: int, entry: _Entry, settings: Settings) -> TrainingError:
    share = informative_groups(entry.finished).get("groups/informative", 0.0)
    return TrainingError(
        f"step {step}: after {entry.enqueued - 1} rollouts still not {settings.train.questions_per_step} groups whose "
        f"rewards differ ({share:.1%} of the groups do): there is nothing left that GRPO could compare",
        hint="the last checkpoint is the result; going on takes harder questions or a higher agent.temperature",
    )


def step_metrics(values: Mapping[str, float]) -> dict[str, float]:
    """verl's numbers of a step under their own names, and the ones that every backend reports under ours."""
    known = {key: float(v) for key, v in values.items() if isinstance(v, (int, float)) and math.isfinite(v)}
    stages = [known[f"timing_s/{stage}"] for stage in _UPDATE_STAGES if f"timing_s/{stage}" in known]
    known |= {"timing/rollout_s": known.get("timing_s/gen", 0.0), "timing/update_s": sum(stages)}
    if "timing_s/step" in known:
        known["timing/step_s"] = known["timing_s/step"]
    if "actor/grad_norm" in known:
        known["update/grad_norm"] = known["actor/grad_norm"]
    return known
