"""Find, check and serve the model that a command names: a run, checkpoint, folder, hub id or name at an endpoint."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sql_agent.cli.export import checkpoint_folder, export_checkpoint
from sql_agent.config.endpoints import EndpointSettings, ModelEndpoint
from sql_agent.config.settings import Settings, load_settings
from sql_agent.database import DatabasePool
from sql_agent.errors import ConfigError, DataError, ModelError
from sql_agent.runs.checkpoints import checkpoints_by_step, last_checkpoint, step_of_verl, verl_checkpoints
from sql_agent.runs.console import Ui
from sql_agent.runs.run_folder import is_run, read_config, settings_of_run
from sql_agent.system.process import slow_imports
from sql_agent.tasks.task import default_settings

NO_BENCHMARK = {"data.natural_questions": 0}  # for commands that need no benchmark, whose database is slow to build
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_HUB_TIMEOUT_S = 5.0
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")


@dataclass(frozen=True)
class ChosenModel:
    """A model to ask: its displayed name, its settings, and the run that trained the model, if known.

    `remote` is its endpoint; without `remote`, this machine serves `settings.model`.
    """

    name: str
    settings: Settings
    remote: ModelEndpoint | None = None
    run: Path | None = None


def find_model(
    named: str | None, run: Path | None, overrides: Sequence[str], flags: Mapping[str, Any], ui: Ui
) -> ChosenModel:
    """Return the model `named`: a run, a checkpoint of either backend, a folder, a hub id, or a name at an endpoint.

    `run` is the run that trained the model. Without `named`, the model is the last checkpoint of `run`. A model of a
    run has the run's settings. A verl checkpoint is exported into the folder `exported` of its run.

    Raises DataError or ModelError if there is no such model, ConfigError if no model is named or a setting is wrong.
    """
    path = Path(named) if named else None
    runs_dir = load_settings(overrides, flags=flags).runs_dir
    if run:
        read_config(run := _existing_run(run, runs_dir) or run)
    elif path and (run := _existing_run(path, runs_dir)):
        path = named = None
    elif path and path.exists():
        run = next(filter(is_run, path.resolve().parents), None)
    if run is None:
        return _untrained(named, overrides, flags)
    settings = settings_of_run(run, overrides, flags)
    if named and not Path(named).exists() and (remote := remote_endpoint(settings, named)):
        return ChosenModel(remote.model, settings, remote, run)
    model = _weights(path, run, ui)
    check_model(str(model))
    return ChosenModel(
        f"{run.name}/{model.parent.name if model.name == 'model' else model.name}",
        settings.model_copy(update={"model": str(model)}),
        run=run,
    )


def known_models(runs_dir: Path) -> list[str]:
    """Return names for `find_model`: OPENAI_MODEL, and runs with checkpoints, each followed by these; newest first."""
    given = EndpointSettings()
    names = [given.model] if given.base_url and given.model else []
    runs = filter(is_run, runs_dir.iterdir()) if runs_dir.is_dir() else ()
    for run in sorted(runs, key=lambda folder: folder.stat().st_mtime, reverse=True):
        if checkpoints := checkpoints_by_step(run):
            names += [run.name, *(str(checkpoints[step]) for step in sorted(checkpoints, reverse=True))]
    return names


def remote_endpoint(settings: Settings, named: str | None) -> ModelEndpoint | None:
    """Return the endpoint at OPENAI_API_BASE for the model `named`, by default for OPENAI_MODEL.

    Returns None if OPENAI_API_BASE is not set or `named` is a folder.
    """
    given = EndpointSettings()
    if not given.base_url or (named and Path(named).exists()):
        return None
    if "@" in urlsplit(given.base_url).netloc:  # the URL is printed and saved with results
        raise ConfigError("OPENAI_API_BASE contains a user name or a password", hint="give the key as OPENAI_API_KEY")
    model = named or given.model
    if not model:
        raise ConfigError("OPENAI_API_BASE is set but no model is named", hint="set OPENAI_MODEL, or give --model NAME")
    return given.endpoint(model, settings.agent.val_temperature)


def describe_local(settings: Settings) -> str:
    if settings.model:
        return settings.model
    trained = "after supervised fine-tuning" if settings.sft.steps else "as it is, without supervised fine-tuning"
    return f"the bundled SmolLM2-135M-Instruct, {trained}"


@contextmanager
def served(model: ChosenModel, databases: DatabasePool, ui: Ui) -> Iterator[ModelEndpoint]:
    """Yield the endpoint of `model`; if it has none, serve the model until the context ends (see `model_endpoint`)."""
    if model.remote:
        yield model.remote
        return
    with slow_imports():  # a model at an endpoint needs no torch
        from sql_agent.training.serving.model_endpoint import model_endpoint  # noqa: PLC0415
    with model_endpoint(model.settings, databases, ui) as endpoint:
        yield endpoint


def _untrained(named: str | None, overrides: Sequence[str], flags: Mapping[str, Any]) -> ChosenModel:
    flags = dict(flags) | ({"model": named} if named else {})
    task = load_settings(overrides, flags=flags).task
    settings = load_settings(overrides, flags=flags, defaults=default_settings(task))
    if remote := remote_endpoint(settings, settings.model or None):
        return ChosenModel(remote.model, settings, remote)
    if named and not Path(named).exists() and not is_hub_id(named):
        known = known_models(settings.runs_dir)
        near = difflib.get_close_matches(named, known, n=3, cutoff=0.5) or known[:3]
        runs = f"in {settings.runs_dir} there is {', '.join(near)}; or " if near else ""
        raise DataError(
            f"there is no run, checkpoint or folder called {named!r}",
            hint=f"{runs}name a folder or OWNER/NAME of the hub, or set OPENAI_API_BASE to the model's endpoint",
        )
    check_model(settings.model)
    return ChosenModel(settings.model or describe_local(settings), settings)


def _weights(path: Path | None, run: Path, ui: Ui) -> Path:
    """Return the Hugging Face folder of the checkpoint `path`; by default, of the last checkpoint of `run`."""
    if path is None and not verl_checkpoints(run):
        return last_checkpoint(run)
    step = step_of_verl(path) if path else None
    if path is not None and step is None:
        return path / "model" if (path / "state.json").exists() else path
    checkpoint = checkpoint_folder(run, step)
    out = run / "exported" / checkpoint.name
    if not out.exists():
        ui.say(f"Exporting {checkpoint} to {out}")
        out.parent.mkdir(exist_ok=True)
        export_checkpoint(checkpoint, out)
    return out


def _existing_run(path: Path, runs_dir: Path) -> Path | None:
    return next((folder for folder in (path, runs_dir / path) if is_run(folder)), None)


def check_model(model: str) -> None:
    """Raise ModelError unless `model` is a Hugging Face folder, a hub id, or "" for the bundled model.

    A hub id that is not in the cache is looked up here, because the library that loads models would retry for more than
    a minute if it could not reach the hub.
    """
    check_model_folder(model)
    if not model or Path(model).is_dir():
        return
    from huggingface_hub import HfApi, try_to_load_from_cache  # noqa: PLC0415  slow

    if isinstance(try_to_load_from_cache(model, "config.json"), str):
        return
    try:
        HfApi().model_info(model, timeout=_HUB_TIMEOUT_S)
    except Exception as error:  # the hub client's version decides whether requests, httpx or httpx2 raises the error
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"there is no folder {model}, and the hub did not return a model of that name: {reason}",
            hint="give a Hugging Face folder, check the spelling of OWNER/NAME, or check the network",
        ) from None


def check_model_folder(model: str) -> None:
    """Raise ModelError unless `model` is "", a complete Hugging Face folder, or of the form OWNER/NAME."""
    folder = Path(model)
    if not model or folder.is_dir():
        parts = {"config.json": ("config.json",), "weights": _WEIGHTS, "a tokenizer": ("tokenizer*", "vocab*")}
        missing = [part for part, names in parts.items() if not any(any(folder.glob(name)) for name in names)]
        if model and missing:
            raise ModelError(
                f"{model} is not a Hugging Face model folder: {', '.join(missing)} missing",
                hint="in a checkpoint give CHECKPOINT/model; for a checkpoint of verl run `sql-agent export` first",
            )
        count_parameters(model)
    elif not is_hub_id(model):
        raise ModelError(
            f"there is no model folder {model}", hint="give a Hugging Face folder, or OWNER/NAME of the hub"
        )


def is_hub_id(model: str) -> bool:
    """Return whether `model` has the form OWNER/NAME, and is no path in an existing folder OWNER."""
    owner = model.partition("/")[0]
    return _HUB_ID.fullmatch(model) is not None and owner != "runs" and not Path(owner).exists()


def count_parameters(model: str) -> int | None:
    """Return the number of parameters in the safetensors files of `model`, or None if there are no such files."""
    if not model:
        return 134_515_008  # SmolLM2-135M
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415  a model at an endpoint needs none

    sizes = []
    for path in sorted(Path(model).glob("*.safetensors")):
        try:
            with safe_open(path, framework="np") as weights:
                sizes += [math.prod(weights.get_slice(name).get_shape()) for name in weights.keys()]  # noqa: SIM118
        except SafetensorError as error:
            raise ModelError(f"{path} is damaged: {error}", hint="copy the file again; it may be incomplete") from None
    return sum(sizes) if sizes else None
