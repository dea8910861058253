"""Extend verl with an agent loop, a manager of agent loops and two replay buffers.

verl loads these classes by the names in `agent_loops.yaml` and `config.py`. Only verl's processes import this module.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import aiohttp
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.utils.ray_utils import auto_await

from sql_agent.system.servers import bearer
from sql_agent.training.verl.interprocess import TEMPLATE_SETTINGS, end_of_start_part, run_token
from sql_agent.training.verl.policy_endpoint import find_endpoints

_POLL_S = 0.05  # verl's default of 2 s is a third of the step time of a small model
_METRIC = "reward"  # verl's name of the rewards that decide whether a group is informative
_ANNOUNCE_TIMEOUT_S = 600.0  # time limit for the rollout server to start the LLM proxies and to test every route


class LightningAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Runs each session of verl as a rollout in agent-lightning's store; the agent runs in a runner process."""

    def __init__(self, trainer_config: Any, **_: Any) -> None:
        # `super().__init__` is not called, because the policy's endpoint renders the conversations.
        self.config = trainer_config.config

    async def run(self, sampling_params: dict[str, Any], **sample: Any) -> list[AgentLoopOutput]:
        """Run one rollout of the question in `sample`, and return one output for each token sequence of the rollout.

        `sample` is a row of the dataset with verl's `global_steps` and `uid`. Each output has the reward of the whole
        rollout (0.0–1.1). `sampling_params` is not used, because the agent has its own settings for sampling. Raises
        RuntimeError when the rollout was lost; verl then counts the session as failed.
        """
        request = {
            "question": sample["extra_info"]["question"],
            "mode": sample["extra_info"]["mode"],
            "step": int(sample["global_steps"]),
            "group": sample["uid"],
        }
        url = f"{self.config.sql_agent.rollout_server}/rollouts"
        rollout = await _post(_session(asyncio.get_running_loop()), url, request)
        return [_output(sequence, rollout) for sequence in rollout["sequences"]]


class LightningAgentLoopManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """Connects the policy to the LLM proxies, then distributes sessions over agent loops like verl's own manager."""

    @classmethod
    @auto_await  # type: ignore[untyped-decorator]
    async def create(cls, *args: Any, **kwargs: Any) -> LightningAgentLoopManager:
        """Create the manager as verl does, serve the policy, and return when rollouts can be scheduled.

        The policy's endpoints, which forward to the vLLM replicas, are started. Their URLs are sent to the rollout
        server, which tests each route. Raises RuntimeError when the rollout server reports an error.
        """
        config, client = kwargs["config"], kwargs["llm_client"]
        instance = cls(*args, **kwargs)
        await instance._init_agent_loop_workers()
        of_policy = config.actor_rollout_ref
        agent = {name: config.sql_agent[name] for name in TEMPLATE_SETTINGS}
        interrupted = config.trainer.v1.trainer_mode != "sync"
        policy = client, of_policy.model.path, of_policy.rollout.max_model_len, agent, interrupted
        endpoints = find_endpoints(config.sql_agent.endpoints)
        end_of_start_part("agent loops")
        addresses = await asyncio.gather(*(endpoint.serve.remote(*policy) for endpoint in endpoints))
        url = f"{config.sql_agent.rollout_server}/endpoints"
        timeout = aiohttp.ClientTimeout(total=_ANNOUNCE_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout, headers=bearer(run_token())) as session:
            await _post(session, url, addresses)
        return instance


class PromptReplayBuffer(ReplayBuffer):  # type: ignore[misc]
    """Replay buffer of the trainer mode `sync`; it replaces each question whose rollouts were all lost.

    With `informative_only` it also replaces each question whose rollouts all have the same reward (dynamic sampling, Yu
    et al. 2025, arXiv:2503.14476, 3.2).
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            **kwargs,
            poll_interval=_POLL_S,
            sync_refill_failed_groups=True,
            gen_batch_size=1,
            train_batch_size=kwargs["sampler_kwargs"].questions_per_step,
            filter_groups_metric=_filter_metric(kwargs["sampler_kwargs"]),
        )


class PromptReplayBufferAsync(ReplayBufferAsync):  # type: ignore[misc]
    """Replay buffer of the asynchronous trainer modes; with `informative_only` it drops groups with equal rewards."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, poll_interval=_POLL_S, filter_groups_metric=_filter_metric(kwargs["sampler_kwargs"]))


def _filter_metric(options: Any) -> str | None:
    return _METRIC if options.informative_only else None


@functools.cache
def _session(_: asyncio.AbstractEventLoop) -> aiohttp.ClientSession:
    """Return the HTTP session of an event loop, without limits, because the scheduler limits each rollout's time."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None), headers=bearer(run_token())
    )


async def _post(session: aiohttp.ClientSession, url: str, body: Any) -> Any:
    """Post `body` as JSON and return the JSON of the reply. Raises RuntimeError when the status is not 200."""
    async with session.post(url, json=body) as response:
        if response.status != 200:
            raise RuntimeError(f"{response.status} from {url}: {await response.text()}")
        return await response.json()


def _output(sequence: dict[str, Any], rollout: dict[str, Any]) -> AgentLoopOutput:
    first_version, last_version = sequence["versions"] or (None, None)
    return AgentLoopOutput(
        prompt_ids=sequence["prompt_ids"],
        response_ids=sequence["response_ids"],
        response_mask=sequence["response_mask"],
        response_logprobs=sequence["logprobs"],
        reward_score=rollout["reward"],
        num_turns=rollout["turns"],
        metrics=AgentLoopMetrics(generate_sequences=rollout["seconds"]),
        extra_fields={
            "reward_extra_info": {},
            "turn_scores": [],
            "tool_rewards": [],
            "min_global_steps": first_version,
            "max_global_steps": last_version,
        },
    )
