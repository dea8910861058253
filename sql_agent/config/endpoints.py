"""Define the addresses and keys of services, which come from the environment or `.env` only."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sql_agent.config.paths import ENV_FILES


class _FromEnvironment(BaseSettings):
    """Reads its fields from the environment variables that they name, or from `.env`."""

    model_config = SettingsConfigDict(env_file=ENV_FILES, extra="ignore", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Take an empty variable, which also hides the one in `.env`, for one that is not set."""
        return {name: value for name, value in values.items() if value != ""}


class TeacherSettings(_FromEnvironment):
    """The endpoints of the judges, from the conventional variables or `.env`."""

    model: str | None = Field(
        None,
        validation_alias=AliasChoices("TEACHER_MODEL"),
        description="model of the judges `llm` and `ranking`; without TEACHER_BASE_URL as litellm names it",
    )
    base_url: str | None = Field(
        None,
        validation_alias=AliasChoices("TEACHER_BASE_URL"),
        description="its OpenAI-compatible address, ending in /v1; empty takes the provider in the model's prefix",
    )
    api_key: SecretStr | None = Field(
        None, validation_alias=AliasChoices("TEACHER_API_KEY"), description="its key; empty where it wants none"
    )
    reward_model_url: str | None = Field(
        None,
        validation_alias=AliasChoices("REWARD_MODEL_URL"),
        description='address of the judge `reward-model`: POST {"prompt": …, "response": …} gives {"score": …}',
    )


class DatabaseServerSettings(_FromEnvironment):
    """A database on a server, from the conventional variable or `.env`, because its address holds a password."""

    url: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("DATABASE_URL"),
        description="database to query where `database.path` names none: mysql+pymysql://USER:PASSWORD@HOST/DATABASE "
        "(MySQL or MariaDB, docs/mysql.md) or sqlite:///FILE",
    )


class McpSettings(_FromEnvironment):
    """The bearer token of an MCP server, from the conventional variable or `.env`."""

    token: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("MCP_TOKEN"),
        description="bearer token of `sql-agent mcp --http` and of `agent.mcp_url`",
    )


class ChatSettings(_FromEnvironment):
    """The token of the page of `sql-agent chat --web`, from the conventional variable or `.env`."""

    token: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("CHAT_TOKEN"),
        description="token of the page of `sql-agent chat --web`; empty makes one at each start",
    )


class StoreSettings(_FromEnvironment):
    """The bearer token of a store for other terminals and hosts, from the conventional variable or `.env`."""

    token: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("STORE_TOKEN"),
        description="bearer token of `sql-agent store`, the same for all who use that store; empty: it wants none",
    )


class EndpointSettings(_FromEnvironment):
    """An OpenAI-compatible model for `sql-agent ask`, `chat` and `evaluate` instead of a local one."""

    base_url: str | None = Field(
        None,
        validation_alias=AliasChoices("OPENAI_API_BASE", "OPENAI_BASE_URL"),
        description="address of a model for `sql-agent ask`, `chat` and `evaluate`, ending in /v1; empty: a local one",
    )
    api_key: SecretStr | None = Field(
        None, validation_alias=AliasChoices("OPENAI_API_KEY"), description="its key; empty where it wants none"
    )
    model: str | None = Field(
        None,
        validation_alias=AliasChoices("OPENAI_MODEL"),
        description="name of the model there; required with an address",
    )


class AglSettings(_FromEnvironment):
    """What agent-lightning's own programs read too; the address is refused, because ours have other names for it."""

    role: str | None = Field(
        None,
        validation_alias=AliasChoices("AGL_CURRENT_ROLE"),
        description="part of a run that `sql-agent train` is: algorithm, runner or both; empty: both",
    )
    managed_store: str | None = Field(
        None,
        validation_alias=AliasChoices("AGL_MANAGED_STORE"),
        description="1: the run makes its own store; 0: it uses that of --external-store-address",
    )
    server_host: str | None = Field(
        None,
        validation_alias=AliasChoices("AGL_SERVER_HOST"),
        description="refused: use --external-store-address, or --host of `sql-agent store`",
    )
    server_port: str | None = Field(
        None,
        validation_alias=AliasChoices("AGL_SERVER_PORT"),
        description="refused: use --external-store-address, or --port of `sql-agent store`",
    )


class AgentOpsSettings(_FromEnvironment):
    """AgentOps, which gets the spans of the agent when its key is set."""

    api_key: SecretStr | None = Field(
        None, validation_alias=AliasChoices("AGENTOPS_API_KEY"), description="key of AgentOps; empty sends it nothing"
    )
    api_endpoint: str = Field(
        "https://api.agentops.ai",
        validation_alias=AliasChoices("AGENTOPS_API_ENDPOINT"),
        description="where it logs in",
    )
    exporter_endpoint: str = Field(
        "https://otlp.agentops.ai/v1/traces",
        validation_alias=AliasChoices("AGENTOPS_EXPORTER_ENDPOINT"),
        description="where it takes spans",
    )
