"""Send a run's settings to its runners through the store, and merge the settings with those of a runner's host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import agentlightning as agl
from pydantic import BaseModel, ValidationError

from sql_agent.config.settings import Settings, flatten, nest, public_dump
from sql_agent.errors import ConfigError
from sql_agent.system.messages import first_problem
from sql_agent.tasks.task import BUILT_IN, database_digest, load_task

RESOURCE = "main_llm"
_SETTINGS = "settings"

# The settings that change a rollout: if a runner sets a value itself, the value must be equal to the run's.
_SECTIONS = ("lang", "task", "agent", "database", "judge", "spider")
# Settings that differ between hosts: if a runner sets a value itself, the value replaces the run's.
_HOST_KEYS = (
    "database.path",
    "judge.cache_dir",
    "judge.rubric",
    "spider.data_dir",
    "agent.mcp_url",
    "agent.mcp_command",
)
# A runner ignores the run's values of these keys. Otherwise anyone who can write to the store could run a command on
# this host, or send this host's MCP_TOKEN to another server.
_NEVER_SENT = {"agent.mcp_url": None, "agent.mcp_command": None}


class SentSettings(BaseModel):
    """The settings that an algorithm sends to its runners.

    `run` is the run's name, `judge` the identity of its judge, and `database` the SHA-256 of its database (None: the
    database is not one file).
    """

    run: str
    settings: dict[str, Any]
    judge: str
    database: str | None


def sent_settings(settings: Settings, run: str) -> SentSettings:
    task = load_task(settings.task)
    return SentSettings(
        run=run,
        settings=public_dump(settings),
        judge=task.judge(settings).identity,
        database=database_digest(task, settings),
    )


def route_resources(route: agl.ProxyLLM, sent: SentSettings) -> dict[str, Any]:
    """Build the agent-lightning resources of rollouts that use the LLM proxy `route`: the proxy and the settings."""
    # The settings are a prompt template, because the store has no other resource for text.
    return {RESOURCE: route, _SETTINGS: agl.PromptTemplate(template=sent.model_dump_json(), engine="f-string")}


def text_of(resources: Mapping[str, Any]) -> str:
    """Return the JSON of the SentSettings in `resources`. Raises ConfigError if `resources` has no settings."""
    if _SETTINGS not in resources:
        raise ConfigError(
            "the algorithm sends no settings with its rollouts", hint="use one version of this program on all hosts"
        )
    return str(resources[_SETTINGS].template)


def settings_here(text: str, own: Settings) -> tuple[SentSettings, Settings]:
    """Parse the JSON `text` of a run's settings; return the sent settings, and the settings to use on this host.

    `own` are the settings of this host. Raises ConfigError if `own` has another value of a setting that changes
    rollouts, if `own` does not name the run's task and that task is not built in, or if the sent settings are invalid
    in this version.
    """
    sent = SentSettings.model_validate_json(text)
    _refuse_unnamed_code(sent, own)
    theirs = flatten(sent.settings)
    given = flatten(own.model_dump(mode="json", exclude_unset=True))
    differing = [
        f"{key}={value!r}, in the run {theirs.get(key)!r}"
        for key, value in sorted(given.items())
        if key.partition(".")[0] in _SECTIONS and key not in _HOST_KEYS and theirs.get(key) != value
    ]
    if differing:
        raise ConfigError(
            f"this runner's settings differ from those of the run {sent.run}: {'; '.join(differing)}",
            hint="remove these settings here (command line, environment, .env): a runner takes them from the run",
        )
    hosts = {key: value for key, value in given.items() if key in _HOST_KEYS}
    try:
        return sent, Settings.model_validate(
            nest(theirs, _NEVER_SENT, flatten({"runner": own.runner.model_dump()}), hosts)
        )
    except ValidationError as error:
        raise ConfigError(
            f"the run {sent.run} has settings of another version: {first_problem(error)}",
            hint="use one version of this program on all hosts",
        ) from None


def _refuse_unnamed_code(sent: SentSettings, own: Settings) -> None:
    task = sent.settings["task"]
    if task not in BUILT_IN and task != own.task:
        raise ConfigError(
            f"the run {sent.run} has the task {task}, whose code runs here only if this runner names the task too",
            hint=f"if you trust that code, start this runner with task={task}",
        )


def check_same(sent: SentSettings, here: Settings) -> None:
    """Raise ConfigError if the judge or the database of the settings `here` differs from that of the run."""
    task = load_task(here.task)
    judge = task.judge(here).identity
    if judge != sent.judge:
        raise ConfigError(
            f"this runner has the judge {judge}, and the run {sent.run} has the judge {sent.judge}",
            hint="give this host the same TEACHER_ variables and judge.rubric",
        )
    database = database_digest(task, here)
    if sent.database and database and database != sent.database:
        raise ConfigError(
            f"{task.database_source(here)} differs from the database of the run {sent.run}: SHA-256 {database[:12]}…, "
            f"in the run {sent.database[:12]}…",
            hint="copy the database from the algorithm's host, and name the copy with database.path",
        )
