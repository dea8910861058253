"""Choose the model to ask: one behind OPENAI_API_BASE, or one that this machine serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sql_agent.agent.endpoint import ModelEndpoint
from sql_agent.config.settings import EndpointSettings, Settings, load_settings
from sql_agent.database import DatabasePool
from sql_agent.errors import ConfigError, DataError
from sql_agent.runs.console import Ui
from sql_agent.runs.run_config import read_config
from sql_agent.system.imports import slow_imports


def remote_endpoint(settings: Settings, named: str | None) -> ModelEndpoint | None:
    """Return the endpoint of OPENAI_API_BASE; None when that is not set, or when `named` is a folder of this machine.

    `named` is the model of the command line, which wins over OPENAI_MODEL. Raises ConfigError when neither is given.
    """
    given = EndpointSettings()
    if not given.base_url or (named and Path(named).exists()):
        return None
    model = named or given.model
    if not model:
        raise ConfigError("OPENAI_API_BASE is set but no model is named", hint="set OPENAI_MODEL, or give --model NAME")
    key = given.api_key.get_secret_value() if given.api_key else "unused"
    return ModelEndpoint(given.base_url, model, key, settings.agent.val_temperature, settings.agent.val_top_p)


def settings_of_run(run: Path, overrides: Sequence[str], flags: Mapping[str, Any]) -> Settings:
    """Return the settings that `run` was started with, with those of the command line, except for the model, over them.

    Raises DataError when `run` holds no run, or a damaged config.json.
    """
    saved = read_config(run) if (run / "config.json").is_file() else {}
    if not _is_of_run(saved):
        raise DataError(f"{run} holds no run", hint="name a folder under runs/, such as runs/quickstart")
    return load_settings(overrides, flags=_overlaid(saved, {**flags, "model": saved["model"]}))


def is_run(folder: Path) -> bool:
    """Return whether `folder` is that of a run; a model's folder has a config.json too, without a task."""
    try:
        return (folder / "config.json").is_file() and _is_of_run(read_config(folder))
    except DataError:
        return False


def _is_of_run(config: Mapping[str, Any]) -> bool:
    return {"task", "runs_dir"} <= config.keys()


def _overlaid(values: Mapping[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested `values` with those of `stronger` in their places."""
    result = dict(values)
    for name, value in stronger.items():
        below = result.get(name)
        is_nested = isinstance(value, Mapping) and isinstance(below, Mapping)
        result[name] = _overlaid(dict(below or {}), value) if is_nested else value
    return result


def describe_local(settings: Settings) -> str:
    """Return a phrase that names the model of `local_endpoint`."""
    if settings.model:
        return settings.model
    trained = "after supervised fine-tuning" if settings.sft.steps else "as it is, without supervised fine-tuning"
    return f"the embedded SmolLM2-135M-Instruct, {trained}"


@contextmanager
def local_endpoint(settings: Settings, databases: DatabasePool, ui: Ui) -> Iterator[ModelEndpoint]:
    """Serve the model of `settings` inside the context: a folder as it is, the embedded one after `sft.steps` steps."""
    # Only here, because asking another endpoint needs no torch.
    with slow_imports():
        from sql_agent.training.local.policy_trainer import serve_for_questions  # noqa: PLC0415
        from sql_agent.training.serving.server import MODEL_NAME  # noqa: PLC0415

    service = serve_for_questions(settings, databases, ui)
    try:
        agent = settings.agent
        yield ModelEndpoint(service.base_url, MODEL_NAME, service.api_key, agent.val_temperature, agent.val_top_p)
    finally:
        service.close()
