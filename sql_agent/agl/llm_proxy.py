"""Start agent-lightning's LLM proxy on 127.0.0.1, with its output in a file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import agentlightning as agl
from agentlightning.utils.server_launcher import PythonServerLauncherArgs

from sql_agent.agl.call_recorder import RolloutPath, TokenIdRecorder


def model_entry(name: str, api_base: str) -> dict[str, Any]:
    """Return the entry of a proxy's model list for the model `name`, served at `api_base` (ending in /v1)."""
    # The prefix hosted_vllm/ makes the proxy request and record token ids.
    return {
        "model_name": name,
        "litellm_params": {"model": "hosted_vllm/policy", "api_base": api_base, "api_key": "unused"},
    }


class LocalLlmProxy(agl.LLMProxy):  # type: ignore[misc]
    """Runs an LLMProxy in a process of its own, bound to 127.0.0.1; the output of litellm goes to `log_file`."""

    def __init__(self, log_file: Path) -> None:
        super().__init__(
            launcher_args=PythonServerLauncherArgs(
                host="127.0.0.1",  # the default is every interface
                access_host="127.0.0.1",
                launch_mode="mp",
                healthcheck_url="/health/liveliness",  # the default calls the model behind the proxy
                startup_timeout=120.0,
            ),
            middlewares=[RolloutPath],
            callbacks=["return_token_ids", TokenIdRecorder],
        )
        self._log_file = log_file

    @asynccontextmanager
    async def _serve_context(self) -> AsyncIterator[None]:
        # Entered in the proxy's own process, so this redirects only the proxy's output.
        with self._log_file.open("a", encoding="utf-8") as sink:
            os.dup2(sink.fileno(), 1)
            os.dup2(sink.fileno(), 2)
        async with super()._serve_context():
            yield
