"""Find the database, or the MCP server in front of one, that the settings name."""

from __future__ import annotations

from pathlib import Path

from sql_agent.config.settings import DatabaseServerSettings, McpSettings, Settings
from sql_agent.database import Source, is_url, parse_source
from sql_agent.database.mcp_client import ToolServer
from sql_agent.errors import ConfigError


def given_source(settings: Settings) -> Source | None:
    """Return `database.path`, else the database of DATABASE_URL; None where neither is set.

    Raises ConfigError for a URL that names no database that can be queried, or that stands in `database.path`.
    """
    if (path := given_file(settings)) is not None:
        return path
    url = DatabaseServerSettings().url
    return parse_source(url.get_secret_value()) if url is not None and url.get_secret_value() else None


def given_file(settings: Settings) -> Path | None:
    """Return `database.path`. Raises ConfigError for a URL, because runs keep their settings, a password among them."""
    path = settings.database.path
    if path is not None and is_url(str(path)):
        raise ConfigError("database.path is a URL", hint="give the path of a SQLite file, or the URL as DATABASE_URL")
    return path


def tool_server(settings: Settings) -> ToolServer:
    """Return the MCP server of `agent.mcp_url` or `agent.mcp_command`. Raises ConfigError unless one of them is set."""
    token = McpSettings().token
    agent = settings.agent
    if bool(agent.mcp_url) == bool(agent.mcp_command):
        raise ConfigError(
            "agent.tool=mcp needs agent.mcp_url or agent.mcp_command, one of them",
            hint="agent.mcp_url=http://127.0.0.1:8765/mcp, or agent.mcp_command='sql-agent mcp'",
        )
    return ToolServer(agent.mcp_url, agent.mcp_command, token.get_secret_value() if token is not None else None)
