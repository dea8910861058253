"""Monitor the rollouts of each step: write the step's metrics, and decide when a run must stop."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sql_agent.config.settings import Settings
from sql_agent.errors import NoTripletsError, TrainingError
from sql_agent.rollouts.finished_rollout import FinishedRollout
from sql_agent.rollouts.metrics import count_judge_failures, drop_reasons, informative_groups, summary
from sql_agent.rollouts.scheduler import Mode, RolloutRequest
from sql_agent.runs.alarms import alarms
from sql_agent.runs.console import Ui
from sql_agent.runs.run_folder import UNTRAINED
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Drop, DropCause, Question
from sql_agent.tasks.task import load_task
from sql_agent.training.advantages import group_advantages

_SAY_EVERY_S = 30.0  # between two messages about rollouts lost from the same cause
_MAX_LINE = 500  # characters


def update_metrics(rollout_s: float, update_s: float, figures: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of an update that both backends measure: seconds, and `figures` such as grad_norm."""
    timing = {"timing/rollout_s": rollout_s, "timing/update_s": update_s}
    return timing | {f"update/{name}": value for name, value in figures.items()}


@dataclass
class _Entry:
    """The rollouts of one step, retries included."""

    groups: Counter[str] = field(default_factory=Counter)  # started rollouts by group
    finished: list[FinishedRollout] = field(default_factory=list)
    sets: dict[str, str] = field(default_factory=dict)  # validation set by group

    @property
    def enqueued(self) -> int:
        """Return the number of started rollouts."""
        return self.groups.total()

    def only(self, groups: Collection[str]) -> _Entry:
        """Return the rollouts of `groups` only."""
        return _Entry(
            Counter({group: started for group, started in self.groups.items() if group in groups}),
            [r for r in self.finished if r.group in groups],
        )

    def of_set(self, name: str) -> _Entry:
        """Return the rollouts of one validation set only."""
        return self.only([group for group, of_group in self.sets.items() if of_group == name])

    def take_ended(self) -> _Entry:
        """Remove and return the groups without a running rollout."""
        running = self.groups - Counter(r.group for r in self.finished)
        ended = self.only(self.groups.keys() - running.keys())
        self.groups -= ended.groups
        self.finished = [r for r in self.finished if r.group in running]
        return ended


class StepMonitor:
    """Observes all rollouts, retries included, and sets `failure` as soon as a step is not worth finishing.

    A lost rollout is run again. The run stops, and its error gives the reasons, when

    - more than the accepted share of a step's rollouts were lost,
    - as many rollouts as the step has were lost and none was kept,
    - the judge failed on more than its accepted share, or
    - dynamic sampling does not find enough groups whose rewards differ.

    Rollouts lost because their process died are not counted, because another process has replaced it. `last_event` is
    the monotonic time in seconds at which a rollout last started or ended. `val` maps each validation set to its
    questions, whose ids are unique over all sets.
    """

    def __init__(self, settings: Settings, log: RunLog, ui: Ui, *, val: Mapping[str, Sequence[Question]]) -> None:
        self._settings = settings
        self._task = load_task(settings.task)
        self._val = val
        self._set_of_question = {q.id: name for name, questions in val.items() for q in questions}
        self._log = log
        self._ui = ui
        self._expected: dict[Mode, int] = {
            "train": settings.train.questions_per_step * settings.train.group_size,
            "val": len(self._set_of_question),
        }
        self._entries: dict[tuple[Mode, int], _Entry] = defaultdict(_Entry)
        self.failure: TrainingError | None = None
        self.last_event = time.monotonic()
        self._said_at: dict[DropCause, float] = {}
        self._steps: list[Mapping[str, float]] = []
        self._validations: list[Mapping[str, float]] = []
        self._alarmed: set[str] = set()
        self._said_split = False

    def enqueued(self, request: RolloutRequest) -> None:
        """Count a rollout that starts."""
        self.last_event = time.monotonic()
        entry = self._entries[request.mode, request.step]
        entry.groups[request.group] += 1
        if request.mode == "val":
            entry.sets[request.group] = self._set_of_question[request.question.id]
        limit = self._settings.verl.dynamic_sampling
        if (
            self.failure is None
            and limit
            and request.mode == "train"
            and entry.enqueued > limit * self._expected["train"]
        ):
            self._log.rollouts(request.step, request.mode, entry.finished, group_advantages(entry.finished))
            self.failure = _too_few_informative_groups(request.step, entry, self._settings)

    def finished(self, request: RolloutRequest, rollout: FinishedRollout) -> None:
        """Count a rollout that ended, and decide whether the run must stop."""
        self.last_event = time.monotonic()
        entry = self._entries[request.mode, request.step]
        entry.finished.append(rollout)
        if rollout.dropped is not None:
            self._say_lost(rollout.dropped)
        if rollout.dropped is not None and self.failure is None:
            self.failure = self._failure(request, entry.finished)
            if self.failure is not None:
                self._log.rollouts(request.step, request.mode, entry.finished)

    def close_validation(self, step: int) -> None:
        """Write the metrics and rollouts of the validation after `step`, if any; step 0 is before training."""
        entry = self._entries.pop(("val", step), None)
        if entry is None:
            return
        measured: dict[str, dict[str, float]] = {}
        for name, questions in self._val.items():
            part = entry.of_set(name)
            figures = summary(part.finished, enqueued=part.enqueued, task=self._task)
            measured[name] = {"questions": len(questions), **figures}
            self._log.rollouts(step, "val", part.finished, val_set=name)
        if step != UNTRAINED:  # alarms compare the start of GRPO with its end
            self._validations.append(
                {f"val/{name}/{k}": v for name, figures in measured.items() for k, v in figures.items()}
            )
        self._log.validation(step, measured)
        self._ui.validation(step, measured)

    def close_step(self, step: int, update: Mapping[str, float]) -> None:
        """Write the rollouts of training step `step`, and its metrics with those of its `update`.

        In verl's asynchronous trainer modes, groups that still run when a step ends are counted in a later step.
        """
        entry = self._take_ended(step)
        measured = summary(entry.finished, enqueued=entry.enqueued, task=self._task) | dict(update)
        self._log.rollouts(step, "train", entry.finished, group_advantages(entry.finished))
        self._log.metrics(step, measured)
        self._ui.step(step, self._settings.train.steps, measured)
        self._steps.append(measured)
        self._say_split(int(measured["rollouts/split"]), int(measured["rollouts/kept"]))
        for cause, alarm in alarms(self._steps, self._validations).items():
            if cause not in self._alarmed:
                self._alarmed.add(cause)
                self._ui.say(f"Look at the rollouts, the reward may go wrong: {alarm}")

    def _say_split(self, split: int, kept: int) -> None:
        """Print once that the chat template splits rollouts; those of several roles have several sequences anyway."""
        if split and self._settings.agent.workflow == "react" and not self._said_split:
            self._said_split = True
            self._ui.say(
                f"{split} of {kept} rollouts are several sequences, because the chat template rewrites earlier turns; "
                "each sequence is trained with the reward of its whole rollout"
            )

    def _say_lost(self, drop: Drop) -> None:
        """Print why a rollout was lost, unless a line about the same cause was printed in the last 30 s."""
        now = time.monotonic()
        # The supervisor has already reported the death of a process.
        if drop.cause is not DropCause.PROCESS and now - self._said_at.get(drop.cause, -_SAY_EVERY_S) >= _SAY_EVERY_S:
            self._said_at[drop.cause] = now
            self._ui.say(f"A rollout was lost and is run again: {drop}"[:_MAX_LINE])

    def _take_ended(self, step: int) -> _Entry:
        ended = _Entry()
        for key in sorted(key for key in self._entries if key[0] == "train" and key[1] <= step):
            taken = self._entries[key].take_ended()
            ended.groups += taken.groups
            ended.finished += taken.finished
            if not self._entries[key].groups:
                del self._entries[key]
        return ended

    def _failure(self, request: RolloutRequest, finished: Sequence[FinishedRollout]) -> TrainingError | None:
        finished = [r for r in finished if r.dropped is None or r.dropped.cause is not DropCause.PROCESS]
        where = f"step {request.step} ({request.mode})"
        expected = self._expected[request.mode]
        lost = sum(r.dropped is not None for r in finished)
        judge_failures = count_judge_failures(finished)
        nothing_kept = lost == len(finished) >= expected
        if judge_failures > self._accepted_losses(self._settings.judge.max_failed_share, expected):
            return TrainingError(
                f"{where}: the judge failed on {judge_failures} of {expected} rollouts: {drop_reasons(finished)}",
                hint="repair the judge, then start the run again; the accepted share is "
                f"judge.max_failed_share={self._settings.judge.max_failed_share:g}",
            )
        if lost <= self._accepted_losses(self._settings.runner.max_failed_share, expected) and not nothing_kept:
            return None
        hint = f"see {self._log.folder}/rollouts.jsonl, repair the cause, then start the run again"
        if not any(r.triplets for r in finished):
            return NoTripletsError(
                f"{where}: zero triplets from {len(finished)} rollouts: {drop_reasons(finished)}", hint=hint
            )
        return TrainingError(
            f"{where}: {lost} rollouts were lost, more than runner.max_failed_share allows: {drop_reasons(finished)}",
            hint=hint,
        )

    def _accepted_losses(self, share: float, expected: int) -> float:
        """Return how many of `expected` rollouts may be lost: the `share`, but at least one.

        With the judge `ranking` it is at least one group, because a failed ranking loses its whole group.
        """
        one = self._settings.train.group_size if self._settings.judge.name == "ranking" else 1
        return max(one, share * expected)


def _too_few_informative_groups(step: int, entry: _Entry, settings: Settings) -> TrainingError:
    share = informative_groups(entry.finished).get("groups/informative", 0.0)
    return TrainingError(
        f"step {step}: after {entry.enqueued - 1} rollouts still not {settings.train.questions_per_step} groups whose "
        f"rewards differ ({share:.1%} of the groups do), and GRPO learns from no others",
        hint="the last checkpoint is the result; to continue, use harder questions or a higher agent.temperature",
    )
