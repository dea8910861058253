"""GRPO on one machine without a GPU: serve the policy, roll out, update, save."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import agentlightning as agl

from sql_agent.agl.lit_agent import RESOURCE
from sql_agent.agl.llm_proxy import model_entry
from sql_agent.agl.preflight import check_triplet
from sql_agent.agl.run_role import cancel_stale_rollouts
from sql_agent.backends.algorithm import TrainingAlgorithm
from sql_agent.backends.judge_failures import check_judge_failures
from sql_agent.errors import NoTripletsError, TrainingError
from sql_agent.reward.factory import group_judge_from_settings
from sql_agent.rl.advantages import group_advantages
from sql_agent.rl.batching import batch_for_step
from sql_agent.rl.group_ranking import rank_groups
from sql_agent.rl.metrics import drop_reasons, summary
from sql_agent.rl.rollouts import FinishedRollout, collect, enqueue, wait_finished
from sql_agent.schemas import Question
from sql_agent.system.imports import without_gc
from sql_agent.system.sockets import bind_local

if TYPE_CHECKING:
    from sql_agent.backends.local.policy_trainer import PolicyTrainer

logger = logging.getLogger(__name__)
_SERVED_AS = "policy"


class LocalGrpo(TrainingAlgorithm):
    """The algorithm of backend `local`.

    Torch is imported inside `run`, after agent-lightning has forked its runners: a process that has already
    started torch's threads must not be forked.
    """

    stopping = "Stopping after saving what was done; interrupt again to stop at once."

    async def _run(self, train: Sequence[Question], val: Sequence[Question]) -> None:
        self._group_judge = group_judge_from_settings(self._settings)
        sock = bind_local()
        proxy = self.get_llm_proxy()
        if proxy is None:
            raise TrainingError("the local backend needs the LLM proxy")
        api_base = f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
        proxy.update_model_list([model_entry(_SERVED_AS, api_base)])
        # The proxy forks too, so it starts before torch is there.
        with self._ui.status("Starting the LLM proxy"):
            await proxy.start()
        try:
            trainer = await self._open_trainer(train, sock)
            if trainer is None:
                return
            try:
                await self._train(trainer, proxy, train, val)
            finally:
                trainer.close()
        finally:
            sock.close()
            await proxy.stop()

    async def _open_trainer(self, train: Sequence[Question], sock: Any) -> PolicyTrainer | None:
        with without_gc():
            from sql_agent.backends.local.policy_trainer import PolicyTrainer  # noqa: PLC0415  imports torch, see the class

        # In a thread, so that the event loop stays free to hear a signal.
        trainer = await asyncio.to_thread(
            PolicyTrainer.open,
            self._settings,
            self._log,
            train,
            self._ui,
            sock=sock,
            resume=self._resume,
            stopped=self._stop.is_set,
        )
        if self._stop.is_set():
            trainer.close()
            return None
        return trainer

    async def _train(
        self, trainer: PolicyTrainer, proxy: agl.LLMProxy, train: Sequence[Question], val: Sequence[Question]
    ) -> None:
        store = self.get_store()
        triplet = await check_triplet(store, proxy.as_resource(), self.get_adapter())
        self._ui.say(
            f"Preflight: one call through proxy and store came back as a triplet "
            f"({len(triplet.prompt['token_ids'])} prompt and {len(triplet.response['token_ids'])} response ids)."
        )
        await cancel_stale_rollouts(store)
        resources = await store.add_resources({RESOURCE: proxy.as_resource()})
        if trainer.step == 0:
            await self._validate(store, resources.resources_id, 0, val)
        steps = self._settings.train.steps
        while trainer.step < steps and not self._stop.is_set():
            if not await self._step(trainer, store, resources.resources_id, train):
                break
            if trainer.step % self._settings.train.save_every == 0 and trainer.step < steps:
                await asyncio.to_thread(trainer.save)
        if trainer.step > trainer.saved:
            with self._ui.status("Saving"):
                await asyncio.to_thread(trainer.save)
        if not self._stop.is_set():
            await self._validate(store, resources.resources_id, trainer.step, val)

    async def _step(
        self, trainer: PolicyTrainer, store: agl.LightningStore, resources_id: str, train: Sequence[Question]
    ) -> bool:
        """One GRPO step; False when a signal came before its rollouts were in, so that nothing was changed."""
        settings, step = self._settings.train, trainer.step + 1
        questions = batch_for_step(train, settings.questions_per_step, step=step, seed=self._settings.seed)
        started = time.monotonic()
        async with self._rollouts(
            store, questions, "train", resources_id, copies=settings.group_size, title=f"Step {step}/{settings.steps}"
        ) as (rollouts, enqueued):
            rollout_s = time.monotonic() - started
        if self._stop.is_set():
            return False
        if self._group_judge is not None:
            with self._ui.status(f"Step {step}/{settings.steps}: ranking"):
                rollouts = await rank_groups(self._group_judge, rollouts)
        values = summary(rollouts, enqueued=enqueued)
        kept = [r for r in rollouts if r.dropped is None]
        advantages = group_advantages(kept)
        self._log.rollouts(step, "train", rollouts, advantages)
        self._check(rollouts, enqueued, step)
        started = time.monotonic()
        with self._ui.status(f"Step {step}/{settings.steps}: update"):
            values |= await asyncio.to_thread(trainer.update, kept, advantages)
        values |= {"timing/rollout_s": rollout_s, "timing/update_s": time.monotonic() - started}
        self._log.metrics(step, values)
        self._ui.step(step, settings.steps, values)
        return True

    def _check(self, rollouts: Sequence[FinishedRollout], enqueued: int, step: int) -> None:
        """Stop the run with its cause when a step left nothing to learn from, or when the judge fails too often."""
        reasons = drop_reasons(rollouts)
        if not any(r.triplets for r in rollouts):
            missing = enqueued - len(rollouts)
            late = f"; {missing} of {enqueued} did not finish in time" if missing else ""
            raise NoTripletsError(
                f"step {step} ended with zero triplets from {enqueued} rollouts: {reasons}{late}",
                hint=f"see {self._log.folder}/rollouts.jsonl, and run `python utils/check_install.py`",
            )
        if all(r.dropped for r in rollouts):
            raise TrainingError(
                f"step {step}: every rollout was dropped: {reasons}", hint="mend the cause, then --resume"
            )
        judged = check_judge_failures(self._settings, rollouts, expected=enqueued, where=f"step {step}")
        if judged is not None:
            raise judged

    async def _validate(
        self, store: agl.LightningStore, resources_id: str, step: int, questions: Sequence[Question]
    ) -> None:
        async with self._rollouts(
            store, questions, "val", resources_id, copies=1, title=f"Validation at step {step}"
        ) as (rollouts, enqueued):
            pass
        if self._stop.is_set():
            return
        values = summary(rollouts, enqueued=enqueued)
        self._log.rollouts(step, "val", rollouts)
        self._check(rollouts, enqueued, step)
        self._log.validation(step, values, questions=enqueued)
        self._ui.validation(step, values, questions=enqueued)

    @asynccontextmanager
    async def _rollouts(
        self,
        store: agl.LightningStore,
        questions: Sequence[Question],
        mode: str,
        resources_id: str,
        *,
        copies: int,
        title: str,
    ) -> AsyncIterator[tuple[list[FinishedRollout], int]]:
        """Run the questions through the store; on the way out, rollouts that never ended are cancelled."""
        runner = self._settings.runner
        groups = await enqueue(
            store,
            questions,
            copies=copies,
            mode=mode,
            resources_id=resources_id,
            timeout_s=runner.rollout_timeout_s,
        )
        with self._ui.progress(title, len(groups)) as progress:
            ended = await wait_finished(
                store, list(groups), deadline_s=2 * runner.rollout_timeout_s, stop=self._stop, progress=progress
            )
        try:
            finished = await collect(store, self.get_adapter(), ended, groups, span_deadline_s=runner.span_deadline_s)
            yield finished, len(groups)
        finally:
            for rollout_id in groups.keys() - {r.rollout_id for r in ended}:
                await store.update_rollout(rollout_id, status="cancelled")
