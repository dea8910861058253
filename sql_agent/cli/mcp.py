"""Serve the tool to MCP clients: sql-agent mcp [--http [HOST:]PORT]"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from sql_agent.agent.mcp_server import make_server
from sql_agent.cli.parser import help_text
from sql_agent.config.settings import McpSettings, load_settings
from sql_agent.data.task import load_task

_DESCRIPTION = """\
Serve the tool query_database_by_sql to any MCP client: the guard, the caps and
the hints are those of the agent. Over stdio, or with --http over streamable
HTTP at http://HOST:PORT/mcp, where clients need the bearer token MCP_TOKEN; one
is made and shown where none is set."""

_EXAMPLES = """
  sql-agent mcp                                  over stdio, the sample database
  sql-agent mcp database.path=/data/medical.db
  MCP_TOKEN=secret sql-agent mcp --http 8765     on 127.0.0.1
  sql-agent mcp --http 0.0.0.0:8765              for other hosts too
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the client leaves or the program is stopped; return the exit code."""
    arguments = _parser().parse_args(argv)
    settings = load_settings(arguments.overrides, config_file=arguments.config)
    settings = settings.model_copy(update={"agent": settings.agent.model_copy(update={"tool": "builtin"})})
    task = load_task(settings.task)
    task.prepare(settings, _say)
    token = None
    if arguments.http is not None:
        given = McpSettings().token
        token = given.get_secret_value() if given is not None else secrets.token_urlsafe(24)
        _say(
            f"Serving at http://{arguments.http[0]}:{arguments.http[1]}/mcp" + ("" if given else f", MCP_TOKEN={token}")
        )
    with task.open_database(settings) as database:
        server = make_server(task, database, token=token)
        if arguments.http is None:
            asyncio.run(server.run_stdio_async(show_banner=False))
        else:
            host, port = arguments.http
            # Each request by itself: clients come and go, and an answer needs no session.
            asyncio.run(
                server.run_http_async(
                    show_banner=False,
                    host=host,
                    port=port,
                    log_level="warning",
                    stateless_http=True,
                    json_response=True,
                )
            )
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # stdout belongs to the protocol


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not PORT or HOST:PORT")
    return host or "127.0.0.1", int(port)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sql-agent mcp", **help_text(_DESCRIPTION, _EXAMPLES))
    parser.add_argument("--http", type=_address, metavar="[HOST:]PORT", help="over HTTP; HOST is 127.0.0.1 by default")
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="any setting")
    return parser
