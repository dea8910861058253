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
from agentlightning.utils.server_launcher import PythonServerLauncherArgs

from sql_agent.rollouts.proxy_calls import PolicyCalls, RolloutPath, ServedModel, TokenIdRecorder
from sql_agent.rollouts.run_role import StoreAddress
from sql_agent.rollouts.store import StoreClient
from sql_agent.system.servers import uvicorn_server

HEALTH = "/health/liveliness"  # litellm's other health endpoints call the model


class LocalLlmProxy(agl.LLMProxy):  # type: ignore[misc]
    """LLM proxy at 127.0.0.1:`port` that forwards calls to `models` and writes a span of each call to `store`.

    Spans have token ids if all model servers return them. Requests need the bearer `token`, if there is one. A process
    can have only one proxy, because litellm's proxy is a global variable.
    """

    def __init__(
        self, port: int, store: agl.LightningStore, models: Sequence[ServedModel], *, token: str | None = None
    ) -> None:
        with_token_ids = all(model.has_token_ids for model in models)
        super().__init__(
            model_list=[_model_entry(model, index) for index, model in enumerate(models)],
            store=store,
            launcher_args=PythonServerLauncherArgs(
                host="127.0.0.1",  # agent-lightning's default is every interface
                access_host="127.0.0.1",
                port=port,
                healthcheck_url=HEALTH,
            ),
            middlewares=[RolloutPath],
            callbacks=[*(["return_token_ids"] if with_token_ids else []), TokenIdRecorder],
        )
        self._token = token
        # Servers that return token ids are our own; litellm adapts calls to other servers.
        self.policy_calls = PolicyCalls(models) if with_token_ids else None

    async def serve(self, sock: socket.socket) -> None:
        """Answer requests at the listening socket `sock` until SIGTERM."""
        async with self._serve_context():
            app = self.server_launcher.app
            server = uvicorn_server(app, self._token, open_paths={HEALTH}, lifespan="auto", log_level="info")
            # Not serve(), because serve() also handles SIGINT, which only the parent process handles.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, setattr, server, "should_exit", True)
            try:
                await server._serve(sockets=[sock])
            finally:
                if self.policy_calls is not None:
                    await self.policy_calls.close()


def serve_proxy(
    sock: socket.socket, store: StoreAddress, models: Sequence[ServedModel], log_file: Path, token: str
) -> None:
    """Run an LLM proxy for `models` at the listening socket `sock`, as the job of this process.

    Spans are written to `store`, stdout and stderr to `log_file`. Requests need the bearer `token`. The exit code is 1
    even after SIGTERM, so that the supervisor starts another proxy for the calls that wait at the open socket.
    """
    with log_file.open("a", encoding="utf-8") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    os.environ.pop("DATABASE_URL", None)  # litellm would try to use this database as its own, and fail to start
    proxy = LocalLlmProxy(sock.getsockname()[1], StoreClient(store), models, token=token)
    asyncio.run(proxy.serve(sock))
    sys.exit(1)


def _model_entry(model: ServedModel, index: int) -> dict[str, Any]:
    """Return litellm's configuration of `model`, with the API key in an environment variable.

    agent-lightning writes the configuration to a temporary file, which remains when the proxy is killed.
    """
    variable = f"SQL_AGENT_PROXY_KEY_{index}"
    os.environ[variable] = model.api_key
    # The prefix hosted_vllm/ makes agent-lightning's proxy record token ids.
    parameters = {
        "model": f"hosted_vllm/{model.model}",
        "api_base": model.base_url,
        "api_key": f"os.environ/{variable}",
    }
    return {"model_name": model.name, "litellm_params": parameters}
