"""Manage verl's agent loops: connect the policy to the LLM proxies, then dispatch sessions."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ
from verl.utils.ray_utils import auto_await

from sql_agent.system.tokens import bearer
from sql_agent.training.verl.policy_endpoint import find_endpoints
from sql_agent.training.verl.run_token import run_token


class LightningAgentLoopManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """Dispatches sessions to agent loops as verl's manager does, after it has put the policy behind the LLM proxies.

    `create` has the endpoints serve the vLLM replicas, sends their addresses to the rollout server, and returns when a
    call through each route came back as a triplet. It raises RuntimeError when that fails.
    """

    @classmethod
    @auto_await  # type: ignore[untyped-decorator]
    async def create(cls, *args: Any, **kwargs: Any) -> LightningAgentLoopManager:
        """Make the manager as verl does, and wait until rollouts can be scheduled."""
        config, client = kwargs["config"], kwargs["llm_client"]
        instance = cls(*args, **kwargs)
        await instance._init_agent_loop_workers()
        policy = client, config.actor_rollout_ref.model.path, config.actor_rollout_ref.rollout.max_model_len
        endpoints = find_endpoints(config.sql_agent.endpoints)
        addresses = await asyncio.gather(*(endpoint.serve.remote(*policy) for endpoint in endpoints))
        await _announce(config.sql_agent.rollout_server, addresses)
        return instance


async def _announce(rollout_server: str, addresses: list[str]) -> None:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600), headers=bearer(run_token())) as session,
        session.post(f"{rollout_server}/endpoints", json=addresses) as response,
    ):
        if response.status != 200:
            raise RuntimeError(f"{response.status} from {rollout_server}: {await response.text()}")
