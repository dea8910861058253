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

# The sections that change a rollout: a runner's own values must be equal to the run's.
_SECTIONS = ("lang", "task", "agent", "database", "judge", "spider")
# Settings of a host: a runner's own value replaces the run's.
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

    `run` is the run's name and `judge` the identity of its judge. `database` is the SHA-256 of the run's database if
    the database is one file, else None.
    """

    run: str
    settings: dict[str, Any]
    judge: str
    database: str | None


def sent_settings(settings: Settings, run: str) -> SentSettings:
    """Return `settings`, without secrets, for the runners of the run named `run`."""
    task = load_task(settings.task)
    return SentSettings(
        run=run,
        settings=public_dump(settings),
        judge=task.judge(settings).identity,
        database=database_digest(task, settings),
    )


def route_resources(route: agl.ProxyLLM, sent: SentSettings) -> dict[str, Any]:
    """Return the store's resources for rollouts through the LLM proxy `route`."""
    # As a prompt template, because the store has no other kind of resource for text.
    return {RESOURCE: route, _SETTINGS: agl.PromptTemplate(template=sent.model_dump_json(), engine="f-string")}


def text_of(resources: Mapping[str, Any]) -> str:
    """Return the JSON of the SentSettings in `resources`. Raises ConfigError when there are no settings."""
    if _SETTINGS not in resources:
        raise ConfigError(
            "the algorithm sends no settings with its rollouts", hint="use one version of this program on all hosts"
        )
    text: str = resources[_SETTINGS].template
    return text


def settings_here(text: str, own: Settings) -> tuple[SentSettings, Settings]:
    """Return the run's settings from the JSON `text`, and their merge with this host's settings `own`.

    Raises ConfigError when `own` contradicts a setting that changes rollouts, or when the task is code that `own` does
    not name.
    """
    sent = SentSettings.model_validate_json(text)
    _refuse_unnamed_code(sent, own)
    theirs = flatten(sent.settings)
    given = flatten(own.model_dump(mode="json", exclude_unset=True))
    differing = [
        f"{key}={value!r}, there {theirs.get(key)!r}"
        for key, value in sorted(given.items())
        if key.partition(".")[0] in _SECTIONS and key not in _HOST_KEYS and theirs.get(key) != value
    ]
    if differing:
        raise ConfigError(
            f"this runner's settings differ from those of the run {sent.run}: {'; '.join(differing)}",
            hint="leave them out here (also in the environment and .env), because a runner takes them from its run",
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
    """Raise ConfigError unless the run's task is built in or `own` names the same task."""
    task = sent.settings["task"]
    if task not in BUILT_IN and task != own.task:
        raise ConfigError(
            f"the run {sent.run} has the task {task}, whose code runs here only when this runner names it too",
            hint=f"if you trust it, start this runner with task={task}",
        )


def check_same(sent: SentSettings, here: Settings) -> None:
    """Raise ConfigError unless the settings `here` have the judge and the database of the run."""
    task = load_task(here.task)
    judge = task.judge(here).identity
    if judge != sent.judge:
        raise ConfigError(
            f"this runner's judge is another than that of the run {sent.run}: {judge}, there {sent.judge}",
            hint="give this host the same TEACHER_ variables and judge.rubric",
        )
    database = database_digest(task, here)
    if sent.database and database and database != sent.database:
        raise ConfigError(
            f"{task.database_source(here)} differs from the database of the run {sent.run}: its SHA-256 is "
            f"{database[:12]}…, there {sent.database[:12]}…",
            hint="copy the file from the algorithm's host, and name it with database.path",
        )
