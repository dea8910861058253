"""Serve agent-lightning's LLM proxy on 127.0.0.1."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import agentlightning as agl
import uvicorn
from agentlightning.utils.server_launcher import PythonServerLauncherArgs

from sql_agent.config.endpoints import NO_API_KEY
from sql_agent.rollouts.proxy_calls import PolicyCalls, RolloutPath, TokenIdRecorder
from sql_agent.rollouts.store_address import StoreAddress
from sql_agent.rollouts.store_client import open_store
from sql_agent.system.tokens import AccessCheck

HEALTH = "/health/liveliness"  # litellm's other health pages call the model behind the proxy
_KEEP_ALIVE_S = 30  # longer than the runners keep an idle connection


def model_entry(name: str, api_base: str, *, model: str = "policy", api_key: str = NO_API_KEY) -> dict[str, Any]:
    """Return the entry of a proxy's model list for `name`, which is served at `api_base` (ending in /v1) as `model`."""
    # The prefix hosted_vllm/ makes the proxy record token ids.
    return {
        "model_name": name,
        "litellm_params": {"model": f"hosted_vllm/{model}", "api_base": api_base, "api_key": api_key},
    }


class LocalLlmProxy(agl.LLMProxy):  # type: ignore[misc]
    """Serves `models` on port `port` of 127.0.0.1 and records each call in `store`, by default with its token ids.

    It answers requests with the bearer `token`, without a token all. It serves in the process that calls `serve`; there
    can be one in a process, because litellm's proxy is a global.
    """

    def __init__(
        self,
        port: int,
        store: agl.LightningStore,
        models: Sequence[dict[str, Any]],
        *,
        with_token_ids: bool = True,
        token: str | None = None,
    ) -> None:
        super().__init__(
            model_list=_with_keys_in_environment(models),
            store=store,
            launcher_args=PythonServerLauncherArgs(
                host="127.0.0.1",  # the default is every interface
                access_host="127.0.0.1",
                port=port,
                healthcheck_url=HEALTH,
            ),
            middlewares=[RolloutPath],
            callbacks=[*(["return_token_ids"] if with_token_ids else []), TokenIdRecorder],
        )
        self._token = token
        # Servers that give token ids are our own; those of others need litellm's care.
        self.policy_calls = PolicyCalls(models) if with_token_ids else None

    async def serve(self, sock: socket.socket) -> None:
        """Serve on the listening `sock` until SIGTERM."""
        async with self._serve_context():
            config = uvicorn.Config(
                AccessCheck(self.server_launcher.app, self._token, open_paths={HEALTH}),
                interface="asgi3",
                log_level="info",
                access_log=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=1,
            )
            server = uvicorn.Server(config)
            # Not serve(), because that handles SIGINT too, which is for the process that started this one.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, setattr, server, "should_exit", True)
            try:
                await server._serve(sockets=[sock])
            finally:
                if self.policy_calls is not None:
                    await self.policy_calls.close()


def serve_proxy(
    sock: socket.socket,
    store: StoreAddress,
    models: Sequence[dict[str, Any]],
    log_file: Path,
    *,
    with_token_ids: bool,
    token: str,
) -> None:
    """Be a proxy process: serve `models` on the listening `sock`, with all output appended to `log_file`.

    It records calls in `store`, and wants the bearer `token`. Exits with 1 also on SIGTERM, so that the supervisor
    replaces the proxy: the socket stays open, and calls would wait there.
    """
    with log_file.open("a", encoding="utf-8") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    os.environ.pop("DATABASE_URL", None)  # litellm would take our database for its own, and not start
    proxy = LocalLlmProxy(sock.getsockname()[1], open_store(store), models, with_token_ids=with_token_ids, token=token)
    asyncio.run(proxy.serve(sock))
    sys.exit(1)


def _with_keys_in_environment(models: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return `models` with the names of environment variables for their keys.

    agent-lightning writes the list to a file in the temporary folder, which stays when the proxy is killed.
    """
    hidden = []
    for index, entry in enumerate(models):
        name = f"SQL_AGENT_PROXY_KEY_{index}"
        os.environ[name] = entry["litellm_params"]["api_key"]
        hidden.append({**entry, "litellm_params": {**entry["litellm_params"], "api_key": f"os.environ/{name}"}})
    return hidden
