"""Send the settings of a run to its runners through the store, and take them there or refuse them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import agentlightning as agl
from pydantic import BaseModel, ValidationError

from sql_agent.config.settings import Settings, flatten, public_dump
from sql_agent.errors import ConfigError
from sql_agent.system.messages import first_problem
from sql_agent.tasks.task import BUILT_IN, Task, load_task

RESOURCE = "main_llm"
_SETTINGS = "settings"

# What decides a rollout. A runner may name these only as its algorithm has them.
_OF_ROLLOUTS = ("lang", "task", "agent", "database", "judge", "spider")
# What belongs to a host: a runner's own wins over its algorithm's.
_OF_HOSTS = ("database.path", "database.keep_open", "judge.cache_dir", "judge.rubric", "spider.data_dir")
# What a runner takes from nobody, because whoever can write to the store could run a command on its host, or have its
# MCP_TOKEN sent to a server of theirs.
_OWN_ONLY = ("agent.mcp_url", "agent.mcp_command")


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
    """Return what the algorithm of the run called `run` sends to its runners. It holds no secret."""
    task = load_task(settings.task)
    return SentSettings(
        run=run,
        settings=public_dump(settings),
        judge=task.judge(settings).identity,
        database=_fingerprint(task, settings),
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

    Of `own` only what was given counts, not the defaults, except for what must come from this host. Raises ConfigError
    when something that decides a rollout was given and differs, or when the task is code that this host did not name.
    """
    sent = SentSettings.model_validate_json(text)
    given = dict(_given(own))
    _refuse_other_settings(sent, given)
    _refuse_unnamed_code(sent, own)
    values = json.loads(json.dumps(sent.settings))
    dumped = public_dump(own)
    values["runner"] = dumped["runner"]
    for key in [*(key for key in _OF_HOSTS if key in given), *_OWN_ONLY]:
        section, _, name = key.partition(".")
        values[section][name] = dumped[section][name]
    try:
        return sent, Settings.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            f"the run {sent.run} has settings of another version: {first_problem(error)}",
            hint="use one version of this program on all hosts",
        ) from None


def _refuse_other_settings(sent: SentSettings, given: Mapping[str, Any]) -> None:
    theirs = flatten(sent.settings)
    differing = [
        f"{key}={value!r}, there {theirs[key]!r}"
        for key, value in sorted(given.items())
        if key.partition(".")[0] in _OF_ROLLOUTS and key not in (*_OF_HOSTS, *_OWN_ONLY) and theirs.get(key) != value
    ]
    if differing:
        raise ConfigError(
            f"this runner was given other settings than the run {sent.run} has: {'; '.join(differing)}",
            hint="leave them out here (also in the environment and .env), because a runner takes them from its run",
        )


def _refuse_unnamed_code(sent: SentSettings, own: Settings) -> None:
    """Raise ConfigError when the run's task is neither built in nor that of `own`: loading it runs its module."""
    task = sent.settings["task"]
    if task not in BUILT_IN and task != own.task:
        raise ConfigError(
            f"the run {sent.run} has the task {task}, whose code runs here only when this runner names it too",
            hint=f"if you trust it, start this runner with task={task}",
        )


def check_same(sent: SentSettings, here: Settings) -> None:
    """Raise ConfigError unless the judge and the database of this host are those of the run that `sent` is of."""
    task = load_task(here.task)
    judge = task.judge(here).identity
    if judge != sent.judge:
        raise ConfigError(
            f"this runner's judge is another than that of the run {sent.run}: {judge}, there {sent.judge}",
            hint="give this host the same TEACHER_ variables and judge.rubric",
        )
    database = _fingerprint(task, here)
    if sent.database and database and database != sent.database:
        raise ConfigError(
            f"{task.database_source(here)} is another database than that of the run {sent.run}: its SHA-256 is "
            f"{database[:12]}…, there {sent.database[:12]}…",
            hint="copy the file from the algorithm's host, and name it with database.path",
        )


def _fingerprint(task: Task, settings: Settings) -> str | None:
    """Return the SHA-256 of the run's own database; None where it is no single file."""
    if settings.agent.tool == "mcp" or settings.spider.data_dir is not None:
        return None
    source = task.database_source(settings)
    if not isinstance(source, Path):
        return None
    with source.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _given(settings: BaseModel, parents: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted names and JSON values of the settings that were given rather than left at their default."""
    dumped = settings.model_dump(mode="json")
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _given(value, f"{parents}{name}.")
        else:
            yield f"{parents}{name}", dumped[name]
