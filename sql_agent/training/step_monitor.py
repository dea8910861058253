"""Monitor the rollouts of each step, write the step's metrics, and stop a run that loses too many rollouts."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sql_agent.config.settings import Settings
from sql_agent.errors import NoTripletsError, TrainingError
from sql_agent.rollouts.metrics import count_judge_failures, drop_reasons, informative_groups, summary
from sql_agent.rollouts.scheduler import Mode, RolloutRequest
from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.runs.charts import alarms
from sql_agent.runs.console import Ui
from sql_agent.runs.run_folder import UNTRAINED
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import DropCause, Question, RolloutRecord
from sql_agent.tasks.task import load_task
from sql_agent.training.advantages import group_advantages

_MAX_LINE = 500  # maximum number of characters in a message about a lost rollout


def update_metrics(rollout_s: float, update_s: float, figures: Mapping[str, float]) -> dict[str, float]:
    """Return the durations of a step and the metrics `figures` of the policy update by names that both backends use."""
    timing = {"timing/rollout_s": rollout_s, "timing/update_s": update_s}
    return timing | {f"update/{name}": value for name, value in figures.items()}


@dataclass
class _Entry:
    """The rollouts of one training step or of one validation, retries included."""

    groups: Counter[str] = field(default_factory=Counter)  # {group: number of started rollouts}
    finished: list[FinishedRollout] = field(default_factory=list)
    sets: dict[str, str] = field(default_factory=dict)  # {group: name of the validation set}

    @property
    def ended(self) -> set[str]:
        """The groups without running rollouts."""
        return self.groups.keys() - (self.groups - Counter(r.group for r in self.finished)).keys()

    def take(self, groups: Collection[str]) -> _Entry:
        """Move the rollouts of `groups` into a new entry, and return it."""
        taken = _Entry(Counter({group: self.groups.pop(group) for group in groups}))
        taken.finished = [r for r in self.finished if r.group in groups]
        self.finished = [r for r in self.finished if r.group not in groups]
        return taken


class StepMonitor:
    """Observes all rollouts, retries included, and sets `failure` to an error as soon as the run must stop.

    A lost rollout is run again. The run must stop when, in one training step or validation,

    - more than the share `runner.max_failed_share` of the rollouts were lost,
    - at least as many rollouts as the step needs were lost, and none was kept,
    - the judge failed on more than the share `judge.max_failed_share` of the rollouts, or
    - dynamic sampling does not find enough groups whose rewards differ.

    A rollout that is lost because its process died is not counted, because the process is replaced. `last_event` is the
    monotonic time in seconds at which a rollout last started or ended. `val` maps the name of each validation set to
    its questions, whose ids are all different.
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
        self._said: set[object] = set()
        self._steps: list[Mapping[str, float]] = []
        self._validations: list[Mapping[str, float]] = []

    def enqueued(self, request: RolloutRequest) -> None:
        """Count a rollout that starts; set `failure` when dynamic sampling has started too many rollouts."""
        self.last_event = time.monotonic()
        entry = self._entries[request.mode, request.step]
        entry.groups[request.group] += 1
        if request.mode == "val":
            entry.sets[request.group] = self._set_of_question[request.question.id]
        limit = self._settings.verl.dynamic_sampling * self._expected["train"]
        if self.failure is None and request.mode == "train" and 0 < limit < entry.groups.total():
            self._log.rollouts(request.step, request.mode, entry.finished, group_advantages(entry.finished))
            share = informative_groups(entry.finished).get("groups/informative", 0.0)
            self.failure = TrainingError(
                f"step {request.step}: after {entry.groups.total() - 1} rollouts, fewer than "
                f"{self._settings.train.questions_per_step} groups have different rewards ({share:.1%} of the groups); "
                "GRPO learns nothing from equal rewards",
                hint="the last checkpoint is the result; to continue, use harder questions or a higher "
                "agent.temperature",
            )

    def finished(self, request: RolloutRequest, rollout: FinishedRollout) -> None:
        """Count a rollout that ended; set `failure` when too many rollouts of the step were lost."""
        self.last_event = time.monotonic()
        entry = self._entries[request.mode, request.step]
        entry.finished.append(rollout)
        drop = rollout.dropped
        if drop is not None and drop.cause is not DropCause.PROCESS:  # the supervisor reports a process that died
            self._say_once(drop.cause, f"A rollout was lost and is run again: {drop}"[:_MAX_LINE])
        if drop is not None and self.failure is None:
            self.failure = self._failure(request, entry.finished)
            if self.failure is not None:
                self._log.rollouts(request.step, request.mode, entry.finished)

    def answered(self, record: RolloutRecord) -> None:
        """Count the `record` of a validation question that the untrained model was asked without a runner."""
        group = record.question.id
        request = RolloutRequest(record.question, "val", UNTRAINED, group)
        reward = record.reward.total if record.reward else None
        self.enqueued(request)
        self.finished(request, FinishedRollout(f"{group}-{UNTRAINED}", group, record, reward, (), (), record.dropped))

    def close_validation(self, step: int) -> None:
        """Write the metrics and rollouts of the validation after training step `step`, if there was a validation.

        `step` is 0 for the validation before GRPO, and UNTRAINED for the one before supervised fine-tuning.
        """
        entry = self._entries.pop(("val", step), None)
        if entry is None:
            return
        measured: dict[str, dict[str, float]] = {}
        for name, questions in self._val.items():
            part = entry.take([group for group, of_group in entry.sets.items() if of_group == name])
            figures = summary(part.finished, enqueued=part.groups.total(), task=self._task)
            measured[name] = {"questions": len(questions), **figures}
            self._log.rollouts(step, "val", part.finished, val_set=name)
        named = self._log.validation(step, measured)
        if step != UNTRAINED:  # alarms compare the first validation of GRPO with the last
            self._validations.append(named)
        self._ui.validation(step, measured)

    def close_step(self, step: int, update: Mapping[str, float]) -> None:
        """Write the rollouts and metrics of training step `step`; `update` includes the metrics of `update_metrics`.

        In verl's asynchronous trainer modes, a group that still has running rollouts is counted in a later step.
        """
        entry = self._take_ended(step)
        measured = summary(entry.finished, enqueued=entry.groups.total(), task=self._task) | dict(update)
        self._log.rollouts(step, "train", entry.finished, group_advantages(entry.finished))
        self._log.metrics(step, measured)
        self._ui.step(step, self._settings.train.steps, measured)
        self._steps.append(measured)
        if (split := int(measured["rollouts/split"])) and self._settings.agent.workflow == "react":
            # With several roles, rollouts have several sequences anyway.
            self._say_once(
                "split",
                f"{split} of {int(measured['rollouts/kept'])} rollouts were split into several sequences, because the "
                "chat template rewrites earlier turns; each sequence is trained with the reward of its whole rollout",
            )
        for cause, alarm in alarms(self._steps, self._validations).items():
            self._say_once(cause, f"Look at the rollouts, because the reward may favour wrong behaviour: {alarm}")
        self._said -= set(DropCause)  # each cause of lost rollouts is reported once a step

    def _say_once(self, about: object, text: str) -> None:
        if about not in self._said:
            self._said.add(about)
            self._ui.say(text)

    def _take_ended(self, step: int) -> _Entry:
        ended = _Entry()
        for key in sorted(key for key in self._entries if key[0] == "train" and key[1] <= step):
            entry = self._entries[key]
            taken = entry.take(entry.ended)
            ended.groups += taken.groups
            ended.finished += taken.finished
            if not entry.groups:
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
                hint="repair the judge, then start the run again, or accept more failures with judge.max_failed_share "
                f"above {self._settings.judge.max_failed_share:g}",
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
        """Return how many of `expected` rollouts may be lost: the `share` (0–1), but at least one rollout.

        With the judge `ranking` it is at least one group, because a failed ranking loses all rollouts of a group.
        """
        one = self._settings.train.group_size if self._settings.judge.name == "ranking" else 1
        return max(one, share * expected)
