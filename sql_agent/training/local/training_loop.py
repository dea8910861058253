"""Train with GRPO on one machine without a GPU; `LocalGrpo._step` does one complete training step."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sql_agent.errors import SqlAgentError
from sql_agent.rollouts.llm_proxy import ServedModel
from sql_agent.rollouts.scheduler import RetryingScheduler, RolloutLostError, RolloutRequest
from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.runs.run_folder import UNTRAINED
from sql_agent.schemas import Question
from sql_agent.system.process import slow_imports
from sql_agent.system.resources import named_memory_errors
from sql_agent.training.advantages import extreme_advantages, group_advantages
from sql_agent.training.algorithm import TrainingAlgorithm
from sql_agent.training.serving.server import ServerThread
from sql_agent.training.step_monitor import update_metrics

if TYPE_CHECKING:
    from sql_agent.training.local.trainer import PolicyTrainer

_SERVED_AS = "policy"
_POLL_S = 0.1
_CHEAP_PER_GROUP = 2  # number of trained rollouts in each group with local.cheap_update


class LocalGrpo(TrainingAlgorithm):
    """The algorithm of the backend `local`: this process trains the policy and serves it to the runners.

    `_run` imports torch after the supervisor of runners and proxies was forked, because a process with torch's threads
    must not be forked.
    """

    async def _run(self, train: Sequence[Question], val: Sequence[Question]) -> None:
        self._began, self._validation_s = time.monotonic(), 0.0
        server = ServerThread.with_key()
        try:
            with self._ui.status("Starting the LLM proxy"):
                models = [ServedModel(_SERVED_AS, server.base_url, api_key=server.api_key)]
                starting = self._processes.start_proxies(self.store_address, models, [self._log.folder / "proxy.log"])
                addresses = await self._unless_stopped(starting)
            if addresses is None:
                return
            trainer = await self._open_trainer(train, server)
            if trainer is None:
                return
            with contextlib.closing(trainer):
                self.stopping = "Stopping after saving a checkpoint; interrupt again to stop at once."
                scheduler = await self._unless_stopped(self._start_rollouts([self._route(addresses[0], _SERVED_AS)]))
                if scheduler is not None:
                    await self._train(trainer, scheduler, train, val)
                if self._stop.is_set():
                    await self._save(trainer)  # saved at step 0 too, so that the fine-tuned model is kept
        finally:
            server.stop()

    async def _open_trainer(self, train: Sequence[Question], server: ServerThread) -> PolicyTrainer | None:
        """Load the policy of a resumed run or fine-tune a new one, and serve it; return None after a signal."""
        with slow_imports():
            from sql_agent.training.local.trainer import FineTuningStopped, PolicyTrainer  # noqa: PLC0415  imports torch

        def stopped() -> bool:
            return self._stop.is_set() or self._monitor.failure is not None

        # In a thread, so that the event loop can handle signals at the same time.
        run = self._settings, self._log, self._ui, server
        if self._resume:
            return await asyncio.to_thread(PolicyTrainer.resume, *run)
        try:
            return await asyncio.to_thread(PolicyTrainer.start, *run, train, stopped)
        except FineTuningStopped:
            if self._monitor.failure is not None:
                raise self._monitor.failure from None
            return None

    async def _train(
        self, trainer: PolicyTrainer, scheduler: RetryingScheduler, train: Sequence[Question], val: Sequence[Question]
    ) -> None:
        if trainer.step == 0:
            if self._settings.train.validate_untrained and self._settings.sft.steps:
                with trainer.untrained():
                    await self._validate(scheduler, UNTRAINED, val)
            await self._validate(scheduler, 0, val)
        steps, longest_s = self._settings.train.steps, 0.0
        while trainer.step < steps and not self._stop.is_set():
            started = time.monotonic()
            try:
                with named_memory_errors():
                    trained = await self._step(trainer, scheduler, train)
            except SqlAgentError:
                if trainer.step > 0:  # before step 1 nothing is saved, so that the run's name stays free
                    await self._save(trainer)
                raise
            if not trained:
                break
            if trainer.step % self._settings.train.save_every == 0 and trainer.step < steps:
                await self._save(trainer)
            is_first, longest_s = not longest_s, max(longest_s, time.monotonic() - started)
            if not self._another_fits(trainer.step, longest_s, say=is_first):
                break
        if not self._stop.is_set():
            await self._save(trainer)
            await self._validate(scheduler, trainer.step, val)

    def _another_fits(self, step: int, step_s: float, *, say: bool) -> bool:
        """Return whether, after training step `step`, another step of `step_s` s still fits into `local.max_minutes`.

        The time of a validation is kept free, in a resumed run that of a step. Prints how many steps fit, if `say` is
        true or no other step fits.
        """
        minutes, steps = self._settings.local.max_minutes, self._settings.train.steps
        if minutes is None or step >= steps:
            return True
        left_s = minutes * 60 - (time.monotonic() - self._began) - (self._validation_s or step_s)
        more = max(0, min(steps - step, int(left_s / step_s)))
        if say or not more:
            last = "" if step + more == steps else "; --resume continues the run for as long again"
            self._ui.say(
                f"A step takes {step_s:.0f} s: local.max_minutes={minutes:g} leaves time for {more} of the "
                f"{steps - step} remaining steps{last}"
            )
        return more > 0

    async def _step(self, trainer: PolicyTrainer, scheduler: RetryingScheduler, train: Sequence[Question]) -> bool:
        """Do one GRPO step; return False, without an update, when a signal came before the step's rollouts had ended.

        1. Pick the step's questions, and request a group of rollouts for each question.
        2. Run the rollouts: runners sample turns from the policy, query the database, and score the answers.
        3. Compute each rollout's advantage from the rewards of its group (`advantages.py`).
        4. Update the policy with the gradient of the clipped loss (`grpo_update.py`).
        5. Write the step's metrics and rollouts.
        """
        settings, step = self._settings.train, trainer.step + 1
        title = f"Step {step}/{settings.steps}"
        questions = batch_for_step(train, settings.questions_per_step, step=step, seed=self._settings.seed)
        requests = [
            RolloutRequest(question, "train", step, f"{step}-{index}")
            for index, question in enumerate(questions)
            for _ in range(settings.group_size)
        ]
        started = time.monotonic()
        kept = await self._roll_out(scheduler, requests, title)
        rollout_s = time.monotonic() - started
        if self._stop.is_set():
            return False
        started = time.monotonic()
        with self._ui.status(f"{title}: update"):
            cheap = self._settings.local.cheap_update
            advantages = extreme_advantages(kept, _CHEAP_PER_GROUP) if cheap else group_advantages(kept)
            figures = await asyncio.to_thread(trainer.update, kept, advantages)
        self._monitor.close_step(step, update_metrics(rollout_s, time.monotonic() - started, figures))
        return True

    async def _validate(self, scheduler: RetryingScheduler, step: int, questions: Sequence[Question]) -> None:
        if self._log.has_validation(step):  # this validation was done before the run was resumed
            return
        requests = [RolloutRequest(question, "val", step, question.id) for question in questions]
        title = "Validation of the untrained model" if step == UNTRAINED else f"Validation at step {step}"
        started = time.monotonic()
        await self._roll_out(scheduler, requests, title)
        self._validation_s = time.monotonic() - started
        if not self._stop.is_set():
            self._monitor.close_validation(step)

    async def _save(self, trainer: PolicyTrainer) -> None:
        with self._ui.status("Saving"):
            await asyncio.to_thread(trainer.save)

    async def _roll_out(
        self, scheduler: RetryingScheduler, requests: Sequence[RolloutRequest], title: str
    ) -> list[FinishedRollout]:
        """Run the rollouts of `requests`, which have the same step, and return the kept ones.

        A signal cancels running rollouts; --resume uses the ended rollouts again. Raises the monitor's `failure` as
        soon as there is one.
        """
        which, waiting = (requests[0].mode, requests[0].step), list(requests)
        in_hand = self._log.take_in_hand(*which)
        if in_hand:
            self._ui.say(f"{len(in_hand)} of {len(requests)} rollouts had ended before the interrupt and are used")
        for rollout in in_hand:
            request = next(request for request in waiting if request.group == rollout.group)
            waiting.remove(request)
            self._monitor.enqueued(request)
            self._monitor.finished(request, rollout)
        tasks = [asyncio.create_task(scheduler.run(request)) for request in waiting]
        running, started = set(tasks), time.monotonic()
        try:
            with self._ui.progress(title, len(tasks)) as progress:
                while running and self._monitor.failure is None and not self._stop.is_set():
                    _, running = await asyncio.wait(running, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
                    progress(len(tasks) - len(running), _so_far(tasks, time.monotonic() - started))
                    await self._show_stall()
        finally:
            for task in running:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        if self._monitor.failure is not None:
            raise self._monitor.failure
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, RolloutLostError | asyncio.CancelledError):
                raise result
        kept = in_hand + [result for result in results if isinstance(result, FinishedRollout)]
        if self._stop.is_set():
            self._log.keep_in_hand(*which, kept)
            self._ui.say(f"{len(kept)} of {len(requests)} rollouts of this step have ended and are kept for --resume")
        return kept


def _so_far(tasks: Sequence[asyncio.Task[FinishedRollout]], seconds: float) -> str:
    """Return tokens per second and mean reward of the ended `tasks` as text; all `tasks` started `seconds` ago."""
    ended = [task.result() for task in tasks if task.done() and not task.cancelled() and not task.exception()]
    rewards = [rollout.reward for rollout in ended if rollout.reward is not None]
    if not rewards:
        return ""
    tokens = sum(rollout.record.usage.completion_tokens for rollout in ended if rollout.record)
    return f"{tokens / seconds:.0f} tokens/s, reward {sum(rewards) / len(rewards):.2f}"


def batch_for_step(questions: Sequence[Question], count: int, *, step: int, seed: int) -> list[Question]:
    """Return the `count` questions of training step `step` (from 1).

    An epoch uses each question once, in an order that depends only on `seed` and the epoch, so that a resumed run
    trains on the same questions as an uninterrupted run.
    """
    chosen = []
    for position in range((step - 1) * count, step * count):
        epoch, index = divmod(position, len(questions))
        order = list(range(len(questions)))
        random.Random(f"{seed}-{epoch}").shuffle(order)
        chosen.append(questions[order[index]])
    return chosen
