"""Meet questions again whose rollouts were rewarded differently, because GRPO learns only from such groups."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from sql_agent.rollouts.metrics import differ
from sql_agent.rollouts.scheduler import RolloutRequest
from sql_agent.schemas import Question


@dataclass
class _Group:
    """Collects the rewards (0.0–1.1) of a group; `ended` counts the lost rollouts, too."""

    question: Question
    ended: int = 0
    rewards: list[float] = field(default_factory=list)


class QuestionPool:
    """Gives a share of the training groups a question from the pool in place of their own.

    A question enters the pool when the rewards of its group differ, and leaves it when it is asked again; the one that
    waited longest comes first. As a policy improves, most new questions earn the same in all of their rollouts, and
    each step has less to learn from. Keeping undecided questions for later is the idea of arXiv:2606.10709. The pool is
    not saved: a resumed run begins with an empty one.
    """

    def __init__(self, *, share: float, group_size: int, seed: int) -> None:
        self._share = share
        self._group_size = group_size
        self._random = random.Random(seed)
        self._undecided: dict[str, Question] = {}  # by id, because two groups can have the same one; oldest first
        self._groups: dict[str, _Group] = {}

    def assign(self, request: RolloutRequest) -> RolloutRequest:
        """Return `request` with the question of its group, which is drawn when the first rollout of the group begins.

        Validation is asked as it is.
        """
        if request.mode != "train":
            return request
        if request.group not in self._groups:
            revisit = self._undecided and self._random.random() < self._share
            question = self._undecided.pop(next(iter(self._undecided))) if revisit else request.question
            self._groups[request.group] = _Group(question)
        return replace(request, question=self._groups[request.group].question)

    def record(self, request: RolloutRequest, reward: float | None) -> None:
        """Record how a rollout of a group ended, None if it was lost; the last one decides about the question."""
        if request.mode != "train":
            return
        group = self._groups[request.group]
        group.ended += 1
        if reward is not None:
            group.rewards.append(reward)
        if group.ended == self._group_size:
            del self._groups[request.group]
            if self._share and differ(group.rewards):
                self._undecided.setdefault(group.question.id, group.question)
