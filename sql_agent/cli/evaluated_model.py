"""Find out which model an argument of `sql-agent evaluate` names, and serve it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sql_agent.agent.endpoint import ModelEndpoint
from sql_agent.cli.asked_model import describe_local, local_endpoint, remote_endpoint
from sql_agent.cli.export import checkpoint_folder, export_checkpoint
from sql_agent.cli.model_folder import check_model_folder
from sql_agent.config.settings import EndpointSettings, Settings, load_settings
from sql_agent.database import DatabasePool
from sql_agent.errors import DataError
from sql_agent.runs.checkpoints import checkpoints_by_step, step_of_verl, verl_checkpoints
from sql_agent.runs.console import Ui
from sql_agent.runs.run_config import is_run, settings_of_run
from sql_agent.runs.run_log import last_checkpoint
from sql_agent.system.runtime import slow_imports


@dataclass(frozen=True)
class EvaluatedModel:
    """A model to evaluate: its name for people, the settings to ask it with, and the run that trained it, if known.

    `remote` is its endpoint where others serve it; else `settings.model` is served here.
    """

    name: str
    settings: Settings
    remote: ModelEndpoint | None = None
    run: Path | None = None


def find_model(
    named: str | None, run: Path | None, overrides: Sequence[str], flags: Mapping[str, Any], ui: Ui
) -> EvaluatedModel:
    """Return the model that `named` stands for: a run, a checkpoint of either backend, a folder, an id, a remote name.

    `run` is the run that trained it; alone it stands for its last checkpoint. A model of a run is asked with the run's
    settings. A verl checkpoint is first exported into its run's folder `exported`. Raises DataError when there is no
    such run, checkpoint or folder, or a file of it is damaged, ModelError when it holds no model, and ConfigError for
    wrong settings.
    """
    found = _find(named, run, overrides, flags, ui)
    if found.remote is None:
        check_model_folder(found.settings.model)
    return found


def _find(
    named: str | None, run: Path | None, overrides: Sequence[str], flags: Mapping[str, Any], ui: Ui
) -> EvaluatedModel:
    path = Path(named) if named else None
    runs_dir = load_settings(overrides, flags=flags).runs_dir
    run = _run_of(run, runs_dir) if run else None
    if path and run is None and (found := _existing_run(path, runs_dir)):
        run, path, named = found, None, None
    if path and run is None:
        run = next((parent for parent in path.resolve().parents if is_run(parent)), None) if path.exists() else None
    if run is None:
        return _untrained(named, overrides, flags)
    settings = settings_of_run(run, overrides, flags)
    if named and not Path(named).exists() and (remote := remote_endpoint(settings, named)):
        return EvaluatedModel(remote.model, settings, remote, run)
    model = _weights(path, run, ui)
    return EvaluatedModel(
        f"{run.name}/{model.parent.name if model.name == 'model' else model.name}",
        settings.model_copy(update={"model": str(model)}),
        run=run,
    )


def known_models(runs_dir: Path) -> list[str]:
    """Return names for `find_model`: the model of OPENAI_MODEL, and the runs in `runs_dir` with their checkpoints.

    The run that was written to last comes first; its name stands for its last checkpoint.
    """
    given = EndpointSettings()
    names = [given.model] if given.base_url and given.model else []
    runs = [folder for folder in runs_dir.iterdir() if is_run(folder)] if runs_dir.is_dir() else []
    for run in sorted(runs, key=lambda folder: folder.stat().st_mtime, reverse=True):
        checkpoints = checkpoints_by_step(run)
        if checkpoints:
            names += [run.name, *(str(checkpoints[step]) for step in sorted(checkpoints, reverse=True))]
    return names


@contextmanager
def served(model: EvaluatedModel, databases: DatabasePool, ui: Ui) -> Iterator[ModelEndpoint]:
    """Serve `model` inside the context: from the GPU where vLLM and a GPU are here, else on the CPU."""
    settings = model.settings
    if model.remote:
        yield model.remote
        return
    with slow_imports():
        from sql_agent.training.serving.server import MODEL_NAME  # noqa: PLC0415
        from sql_agent.training.serving.vllm_engine import vllm_endpoint, vllm_is_usable  # noqa: PLC0415
    if not settings.model or settings.backend == "local" or not vllm_is_usable():
        with local_endpoint(settings, databases, ui) as endpoint:
            yield endpoint
        return
    ui.say(f"Serving {settings.model} with vLLM")
    with vllm_endpoint(settings.model, seed=settings.seed, gpu_share=_gpu_share(settings)) as (base_url, key):
        agent = settings.agent
        yield ModelEndpoint(base_url, MODEL_NAME, key, agent.val_temperature)


def _gpu_share(settings: Settings) -> float | None:
    """Return the share of the GPU's memory that the settings give vLLM in training; None where they name none."""
    rollout = settings.verl.config.get("actor_rollout_ref", {}).get("rollout", {})
    share = rollout.get("gpu_memory_utilization")
    return None if share is None else float(share)


def _untrained(named: str | None, overrides: Sequence[str], flags: Mapping[str, Any]) -> EvaluatedModel:
    settings = load_settings(overrides, flags=dict(flags) | ({"model": named} if named else {}))
    if remote := remote_endpoint(settings, settings.model or None):
        return EvaluatedModel(remote.model, settings, remote)
    if named and "/" not in named and not Path(named).exists():  # every id of the hub is OWNER/NAME
        raise _unknown(named, settings.runs_dir)
    return EvaluatedModel(settings.model or describe_local(settings), settings)


def _unknown(named: str, runs_dir: Path) -> DataError:
    known = known_models(runs_dir)
    near = difflib.get_close_matches(named, known, n=3, cutoff=0.5) or known[:3]
    runs = f"in {runs_dir} there is {', '.join(near)}; or " if near else ""
    return DataError(
        f"there is no run, checkpoint or folder called {named!r}",
        hint=f"{runs}name a folder or OWNER/NAME of the hub, or set OPENAI_API_BASE to where a model is served",
    )


def _weights(path: Path | None, run: Path, ui: Ui) -> Path:
    """Return the Hugging Face folder of a checkpoint of `run`, the last one where `path` names none."""
    if path is None and not verl_checkpoints(run):
        return last_checkpoint(run)
    step = step_of_verl(path) if path else None
    if path is None or step is not None:
        return _exported(checkpoint_folder(run, step), run, ui)
    if not path.is_dir():
        raise DataError(f"there is no model folder {path}", hint=f"name a checkpoint under {run / 'checkpoints'}")
    return path / "model" if (path / "state.json").exists() else path


def _exported(checkpoint: Path, run: Path, ui: Ui) -> Path:
    out = run / "exported" / checkpoint.name
    if not out.exists():
        ui.say(f"Exporting {checkpoint} to {out}")
        out.parent.mkdir(exist_ok=True)
        export_checkpoint(checkpoint, out)
    return out


def _run_of(run: Path, runs_dir: Path) -> Path:
    """Return the folder of a run that is given as a folder or by its name. Raises DataError when there is none."""
    found = _existing_run(run, runs_dir)
    if found is None:
        raise DataError(
            f"{run} holds no run", hint=f"name a folder under {runs_dir}, such as {runs_dir / 'quickstart'}"
        )
    return found


def _existing_run(path: Path, runs_dir: Path) -> Path | None:
    return next((folder for folder in (path, runs_dir / path) if is_run(folder)), None)
