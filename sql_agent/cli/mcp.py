"""Serve the tool query_database_by_sql to any MCP client, with the guard, the
limits and the hints of the agent: over stdio, or with --http over streamable
HTTP at http://HOST:PORT/mcp. HTTP clients need the bearer token MCP_TOKEN; if
it is not set, the server makes one and prints it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from starlette.middleware import Middleware

from sql_agent.agent.mcp_server import make_server
from sql_agent.cli.command import add_setting_flags, add_words, address, new_parser, parse_words
from sql_agent.config.endpoints import TokenSettings
from sql_agent.config.settings import Settings, load_settings
from sql_agent.system.servers import AccessCheck, bind, new_token
from sql_agent.tasks.task import Task, load_task

_EXAMPLES = """
  sql-agent mcp                                  over stdio, the sample database
  sql-agent mcp database.path=/data/medical.db
  MCP_TOKEN=secret sql-agent mcp --http 8765     on 127.0.0.1
  sql-agent mcp --http 0.0.0.0:8765              for other hosts too
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("mcp", __doc__, _EXAMPLES)
    parser.add_argument("--http", type=address, metavar="[HOST:]PORT", help="serve over HTTP; default HOST: 127.0.0.1")
    add_setting_flags(parser, {"--task": "task"})
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings")
    add_words(parser, meaning="any setting, see `sql-agent settings`")
    arguments = parse_words(parser, argv)
    settings = load_settings(arguments.overrides, config_file=arguments.config, flags=arguments.flags)
    settings = settings.model_copy(update={"agent": settings.agent.model_copy(update={"tool": "builtin"})})
    task = load_task(settings.task)
    task.prepare_database(settings, _say)  # makes no questions, which would be slow
    if arguments.http is None:
        _serve_stdio(task, settings)
    else:
        _serve_http(task, settings, *arguments.http)
    return 0


def _serve_stdio(task: Task, settings: Settings) -> None:
    with task.open_database(settings) as database:
        try:
            asyncio.run(make_server(task, database).run_stdio_async(show_banner=False))
        except* BrokenPipeError:  # the client has disconnected, and Python would fail again when it flushes stdout
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _serve_http(task: Task, settings: Settings, host: str, port: int) -> None:
    given = TokenSettings().mcp
    token = given.get_secret_value() if given else new_token()
    with bind(host, port) as sock, task.open_database(settings) as database:
        server = make_server(task, database)
        sock.listen()  # clients that connect from now on wait until the server answers
        _say(f"Serving at http://{host}:{port}/mcp{'' if given else f', MCP_TOKEN={token}'}")
        # Stateless, because a query needs no session.
        asyncio.run(
            server.run_http_async(
                show_banner=False,
                host=host,
                port=port,
                log_level="warning",
                stateless_http=True,
                json_response=True,
                sockets=[sock],
                middleware=[Middleware(AccessCheck, token=token, host=host)],
            )
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # stdout belongs to the protocol
