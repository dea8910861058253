"""Send the settings of a run to its runners through the store, and merge them there with those of the host."""

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

# The sections that decide a rollout: here a runner may be given only what its run has.
_SECTIONS = ("lang", "task", "agent", "database", "judge", "spider")
# What belongs to a host: a runner's own value wins over its run's.
_HOST_KEYS = (
    "database.path",
    "judge.cache_dir",
    "judge.rubric",
    "spider.data_dir",
    "agent.mcp_url",
    "agent.mcp_command",
)
# Of these keys a runner never takes the run's value, because whoever can write to the store could run a command on this
# host, or have its MCP_TOKEN sent to another server.
_NEVER_SENT = {"agent.mcp_url": None, "agent.mcp_command": None}


class SentSettings(BaseModel):
    """What an algorithm sends beside a route to its policy.

    `run` names the run, `settings` are all of its settings, `judge` is the identity of its judge, and `database` the
    SHA-256 of its database where that is one file.
    """

    run: str
    settings: dict[str, Any]
    judge: str
    database: str | None


def sent_settings(settings: Settings, run: str) -> SentSettings:
    """Return what the algorithm of the run called `run` sends to its runners, without secrets."""
    task = load_task(settings.task)
    return SentSettings(
        run=run,
        settings=public_dump(settings),
        judge=task.judge(settings).identity,
        database=database_digest(task, settings),
    )


def route_resources(route: agl.ProxyLLM, sent: SentSettings) -> dict[str, Any]:
    """Return the store's resources for rollouts over `route`."""
    # A template, because no other resource of the store carries text.
    return {RESOURCE: route, _SETTINGS: agl.PromptTemplate(template=sent.model_dump_json(), engine="f-string")}


def text_of(resources: Mapping[str, Any]) -> str:
    """Return what `route_resources` wrote about the settings. Raises ConfigError when it wrote nothing."""
    if _SETTINGS not in resources:
        raise ConfigError(
            "the algorithm sends no settings with its rollouts", hint="use one version of this program on all hosts"
        )
    text: str = resources[_SETTINGS].template
    return text


def settings_here(text: str, own: Settings) -> tuple[SentSettings, Settings]:
    """Return what an algorithm sent as `text`, and the settings of its rollouts on this host, whose own are `own`.

    Raises ConfigError when `own` was given another value for something that decides a rollout, or when the task is code
    that this host did not name.
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
            f"this runner was given other settings than the run {sent.run} has: {'; '.join(differing)}",
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
    """Raise ConfigError unless the run's task is built in or this runner's own settings name the same task."""
    task = sent.settings["task"]
    if task not in BUILT_IN and task != own.task:
        raise ConfigError(
            f"the run {sent.run} has the task {task}, whose code runs here only when this runner names it too",
            hint=f"if you trust it, start this runner with task={task}",
        )


def check_same(sent: SentSettings, here: Settings) -> None:
    """Raise ConfigError unless this host has the judge and the database of the run that sent `sent`."""
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
            f"{task.database_source(here)} is another database than that of the run {sent.run}: its SHA-256 is "
            f"{database[:12]}…, there {sent.database[:12]}…",
            hint="copy the file from the algorithm's host, and name it with database.path",
        )
