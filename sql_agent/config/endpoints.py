"""Define the URLs and secrets of services, which are read only from the environment and `.env`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import AliasChoices, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sql_agent.config.settings import is_trusted, read_dotenv
from sql_agent.config.settings_schema import ENV_FILES
from sql_agent.errors import ConfigError


def _variable(names: str, description: str, default: str | None = None) -> Any:
    """Return a pydantic field that is read from the first set variable in the blank-separated list `names`."""
    return Field(default, validation_alias=AliasChoices(*names.split()), description=description)


class EnvironmentSettings(BaseSettings):
    """Base of settings that are read from environment variables or `.env`."""

    # `populate_by_name` stays off, because it would also read variables named like fields, such as MODEL.
    model_config = SettingsConfigDict(env_file=ENV_FILES, extra="ignore")
    key_of: ClassVar[Mapping[str, str]] = {}  # maps the variable of a URL to the variable of the key that is sent there

    def __init__(self, **values: Any) -> None:
        """Raise ConfigError if an exported key would be sent to a URL from an untrusted `.env`."""
        exported = {name.upper() for name, value in os.environ.items() if value}
        for path in [path for path in ENV_FILES if not is_trusted(path)]:
            given = {name.upper() for name, value in read_dotenv(path).items() if value} - exported
            for url in [url for url, key in self.key_of.items() if url in given and key in exported]:
                raise ConfigError(
                    f"{path} sets {url}, and {self.key_of[url]} of the environment would be sent to this URL",
                    hint=f"if you trust that file, export {url} too",
                )
        super().__init__(**{self._variable_of(name): value for name, value in values.items()})

    @classmethod
    def _variable_of(cls, field: str) -> str:
        alias = cls.model_fields[field].validation_alias
        return str(alias.choices[0]) if isinstance(alias, AliasChoices) else field

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Treat an empty variable as unset."""
        return {name: value for name, value in values.items() if value != ""}


class TeacherSettings(EnvironmentSettings):
    """The endpoints of the models that judge answers: a language model and a reward model."""

    key_of = {"TEACHER_BASE_URL": "TEACHER_API_KEY"}

    model: str | None = _variable(
        "TEACHER_MODEL",
        "model of the judges `llm` and `ranking`; without TEACHER_BASE_URL, a model name in litellm's form",
    )
    base_url: str | None = _variable(
        "TEACHER_BASE_URL",
        "OpenAI-compatible URL of TEACHER_MODEL, ending in /v1; empty: litellm's URL of the provider",
    )
    api_key: SecretStr | None = _variable("TEACHER_API_KEY", "API key for TEACHER_MODEL, if needed")
    reward_model_url: str | None = _variable(
        "REWARD_MODEL_URL",
        'URL of the judge `reward-model`; a POST of {"prompt": …, "response": …} returns {"score": …}',
    )


NO_API_KEY = "unused"  # sent to an endpoint that needs no key, because OpenAI's client refuses an empty key


@dataclass(frozen=True)
class ModelEndpoint:
    """An OpenAI-compatible chat endpoint, and the temperature at which the agent samples from it."""

    base_url: str
    model: str
    temperature: float
    api_key: str = NO_API_KEY


class EndpointSettings(EnvironmentSettings):
    """The endpoint of a remote model, which `sql-agent ask`, `chat` and `evaluate` use instead of a local model."""

    key_of = {"OPENAI_API_BASE": "OPENAI_API_KEY", "OPENAI_BASE_URL": "OPENAI_API_KEY"}

    base_url: str | None = _variable(
        "OPENAI_API_BASE OPENAI_BASE_URL",
        "URL of the model of `sql-agent ask`, `chat` and `evaluate`, ending in /v1; empty: a local model",
    )
    api_key: SecretStr | None = _variable("OPENAI_API_KEY", "API key for OPENAI_API_BASE, if needed")
    model: str | None = _variable("OPENAI_MODEL", "name of the model at OPENAI_API_BASE, required with that variable")

    def endpoint(self, model: str, temperature: float) -> ModelEndpoint:
        key = self.api_key.get_secret_value() if self.api_key else NO_API_KEY
        return ModelEndpoint(self.base_url or "", model, temperature, key)


class DatabaseServerSettings(EnvironmentSettings):
    """The URL of a database server. The URL contains a password, so a run never saves it."""

    url: SecretStr | None = _variable(
        "DATABASE_URL",
        "URL of the database to query, unless `database.path` is set: sqlite:///FILE, or for MySQL and "
        "MariaDB (docs/mysql.md) mysql+pymysql://USER:PASSWORD@HOST/DATABASE",
    )


class TokenSettings(EnvironmentSettings):
    """The bearer tokens of the project's servers."""

    mcp: SecretStr | None = _variable(
        "MCP_TOKEN", "bearer token of `sql-agent mcp --http`, and of the server at `agent.mcp_url`"
    )
    chat: SecretStr | None = _variable(
        "CHAT_TOKEN", "bearer token of `sql-agent chat --web` and `sql-agent serve`; empty: a new token at each start"
    )
    store: SecretStr | None = _variable(
        "STORE_TOKEN", "bearer token of `sql-agent store` and all clients of the store; empty: no token"
    )


class AglSettings(EnvironmentSettings):
    """The role of this process in a distributed run of agent-lightning, and who starts the store."""

    role: str | None = _variable(
        "AGL_CURRENT_ROLE", "role of this `sql-agent train`: algorithm, runner or both; empty: both"
    )
    managed_store: str | None = _variable(
        "AGL_MANAGED_STORE", "1: the run starts its own store; 0: the run uses the store at --external-store-address"
    )


class AgentOpsSettings(EnvironmentSettings):
    """The endpoints and the API key of AgentOps, a tracing service, which gets spans only if the key is set."""

    key_of = {"AGENTOPS_API_ENDPOINT": "AGENTOPS_API_KEY", "AGENTOPS_EXPORTER_ENDPOINT": "AGENTOPS_API_KEY"}

    api_key: SecretStr | None = _variable("AGENTOPS_API_KEY", "API key of AgentOps; empty: AgentOps gets nothing")
    api_endpoint: str = _variable(
        "AGENTOPS_API_ENDPOINT", "URL at which to log in to AgentOps", default="https://api.agentops.ai"
    )
    exporter_endpoint: str = _variable(
        "AGENTOPS_EXPORTER_ENDPOINT",
        "URL to which traces for AgentOps are sent",
        default="https://otlp.agentops.ai/v1/traces",
    )


def plain_schema(schema: Any) -> Any:
    """Return tool schemas without `strict` and `additionalProperties: false`, as litellm sends schemas to vLLM.

    Thus a policy gets the same prompt in demonstrations, in training, and from a client without an LLM proxy.
    """
    if isinstance(schema, dict):
        left_out = {"strict"} | ({"additionalProperties"} if schema.get("additionalProperties") is False else set())
        return {key: plain_schema(value) for key, value in schema.items() if key not in left_out}
    return [plain_schema(item) for item in schema] if isinstance(schema, list) else schema
