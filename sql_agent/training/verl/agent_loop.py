"""Run verl's sessions: request a rollout from the rollout server, and return its token sequences to the trainer."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import aiohttp
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from sql_agent.system.tokens import bearer
from sql_agent.training.verl.run_token import run_token

_SESSIONS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = weakref.WeakKeyDictionary()


class LightningAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Runs a verl session as a rollout of the LightningStore.

    The agent runs in a runner process; this only waits for its rollout. `run` returns one output for each series of
    turns that continue each other, all with the reward of the whole rollout (0.0–1.1). verl counts a session whose
    rollout was lost as failed.
    """

    def __init__(self, trainer_config: Any, **_: Any) -> None:
        # The base class is not initialised, because it prepares to render conversations and the endpoint does that.
        self.config = trainer_config.config

    async def run(self, sampling_params: dict[str, Any], **sample: Any) -> list[AgentLoopOutput]:
        """Run one rollout of `sample`, a row of the dataset with verl's `global_steps` and `uid`.

        `sampling_params` is not used, because the agent's settings decide. Raises RuntimeError when the rollout was
        lost.
        """
        request = {
            "question": sample["extra_info"]["question"],
            "mode": sample["extra_info"]["mode"],
            "step": int(sample["global_steps"]),
            "group": sample["uid"],
        }
        url = f"{self.config.sql_agent.rollout_server}/rollouts"
        async with _session().post(url, json=request) as response:
            if response.status != 200:
                raise RuntimeError(f"{response.status} from {url}: {await response.text()}")
            body = await response.json()
        return [_output(part, body) for part in body["sequences"]]


def _session() -> aiohttp.ClientSession:
    loop = asyncio.get_running_loop()
    if loop not in _SESSIONS:
        # No limit on connections and no time-out, because the scheduler limits the time of each rollout.
        _SESSIONS[loop] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            headers=bearer(run_token()),
        )
    return _SESSIONS[loop]


def _output(part: dict[str, Any], rollout: dict[str, Any]) -> AgentLoopOutput:
    return AgentLoopOutput(
        prompt_ids=part["prompt_ids"],
        response_ids=part["response_ids"],
        response_mask=part["response_mask"],
        response_logprobs=part["logprobs"],
        reward_score=rollout["reward"],
        num_turns=rollout["turns"],
        metrics=AgentLoopMetrics(generate_sequences=rollout["seconds"]),
        extra_fields={
            "reward_extra_info": {},
            "turn_scores": [],
            "tool_rewards": [],
            "min_global_steps": part["min_version"],
            "max_global_steps": part["max_version"],
        },
    )
