"""Serve a store for runs with --external-store-address.

It has the interface of `agl store`, and deletes each rollout once a run has
read it, so that its memory does not grow. With STORE_TOKEN, in the environment
or .env, it requires that bearer token; give the same token to the runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sql_agent.cli.command import new_parser
from sql_agent.errors import ConfigError
from sql_agent.rollouts.run_role import store_token
from sql_agent.runs.console import Ui
from sql_agent.system.process import handled_signals, slow_imports
from sql_agent.system.servers import LOCAL_NAMES, bind

_EXAMPLES = """
  sql-agent store
  STORE_TOKEN=… sql-agent store --host 10.0.0.1 --port 4747    # for other hosts"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("store", __doc__, _EXAMPLES)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, default=4747, help="port (default: 4747)")
    add("--no-token", action="store_true", help="let other hosts use the store without a token")
    arguments = parser.parse_args(argv)
    token = store_token()
    if token is None and not arguments.no_token and arguments.host not in LOCAL_NAMES:
        raise ConfigError(
            f"other hosts could use the store at {arguments.host}, because it has no token",
            hint="set the same STORE_TOKEN (environment or .env) here and for the runs, or add --no-token",
        )
    bind(arguments.host, arguments.port).close()  # a port in use is reported before the slow import
    with slow_imports():
        import agentlightning as agl  # noqa: PLC0415

        from sql_agent.rollouts.lease import BEAT_S, running_run  # noqa: PLC0415
        from sql_agent.rollouts.store import RunStore, served_store  # noqa: PLC0415
        from sql_agent.system.process import install_event_loop  # noqa: PLC0415
    agl.setup_logging("ERROR")
    install_event_loop()
    ui = Ui()

    async def serve() -> None:
        store, stopped = RunStore(), asyncio.Event()
        with handled_signals(stopped.set):
            async with served_store(store, arguments.host, arguments.port, token) as address:
                ui.say(f"The store answers at {address}; Ctrl-C ends the store")
                await stopped.wait()
                if run := await running_run(store):
                    ui.say(
                        f"The run {run} uses this store, and fails without it: interrupt the run, then the store ends "
                        "too. Interrupt the store again to end it at once."
                    )
                while await running_run(store):  # noqa: ASYNC110  there is no event: another process renews a row
                    await asyncio.sleep(BEAT_S)

    asyncio.run(serve())
    return 0
