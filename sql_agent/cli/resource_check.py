"""Check before a run that its model is one, and that memory, disk, open files and GPUs suffice for it."""

from __future__ import annotations

from sql_agent.cli.model_check import check_model_folder, count_parameters
from sql_agent.config.settings import Settings
from sql_agent.errors import ConfigError
from sql_agent.system.files import check_writable
from sql_agent.system.resources import available_memory, free_disk, gpu_names, raise_open_files, shown_size

_SAVED_BYTES = 12  # of a parameter in a checkpoint: the weight and AdamW's two moments, all fp32
_TRAINED_BYTES = 18  # of a parameter in memory: the same, its gradient, and the bf16 copy that samples
_FILES_PER_ROLLOUT = 4  # connections to the proxy, the store, the judge, and one to spare
_FILES = 256  # of a process without rollouts


def check_resources(settings: Settings, *, verl: bool) -> None:
    """Raise a SqlAgentError, which says what is short or damaged and what to do, unless a run can start."""
    check_model_folder(settings.model)
    check_writable(settings.runs_dir, "runs_dir")  # before its disk is measured, because /proc has none
    if not verl:
        check_writable(settings.local.cache_dir, "local.cache_dir")
    _check_open_files(settings)
    if verl:
        _check_gpus(settings)
    parameters = count_parameters(settings.model)
    if parameters is not None and not (verl and settings.verl.lora_rank):
        _check_disk(settings, parameters)
    if parameters is not None and not verl:
        _check_memory(settings, parameters)


def _check_disk(settings: Settings, parameters: int) -> None:
    kept = settings.train.keep_checkpoints + 1  # the next one is written before the oldest goes
    needed, free = _SAVED_BYTES * parameters * kept, free_disk(settings.runs_dir)
    if free < needed:
        raise ConfigError(
            f"{shown_size(needed)} are needed for the checkpoints of this run, {shown_size(free)} are free at "
            f"{settings.runs_dir}",
            hint="free space there, name another disk by runs_dir=FOLDER, or lower train.keep_checkpoints",
        )


def _check_memory(settings: Settings, parameters: int) -> None:
    each = _TRAINED_BYTES + (4 if settings.train.kl_coef else 0)
    needed, free = each * parameters, available_memory()
    if free is not None and free < needed:
        raise ConfigError(
            f"training this model of {parameters / 1e6:.0f} M parameters takes {needed / 1e9:.1f} GB of memory "
            f"and more for the batches; {free / 1e9:.1f} GB are free",
            hint="train a smaller model, end other programs, or use a GPU with --backend verl",
        )


def _check_open_files(settings: Settings) -> None:
    runner = settings.runner
    wanted = _FILES + _FILES_PER_ROLLOUT * runner.concurrency * runner.n_runners  # the store and a proxy serve them all
    if (limit := raise_open_files(wanted)) < wanted:
        raise ConfigError(
            f"{wanted} open files are needed for {runner.n_runners} runners of {runner.concurrency} rollouts each, "
            f"and this process may open {limit}",
            hint=f"run `ulimit -n {wanted}` first, or lower runner.concurrency",
        )


def _check_gpus(settings: Settings) -> None:
    if settings.verl.nnodes == 1 and (found := gpu_names()) and len(found) < settings.verl.n_gpus:
        raise ConfigError(
            f"verl.n_gpus={settings.verl.n_gpus}, but this host has {len(found)}: {', '.join(found)}",
            hint=f"use --n-gpus {len(found)}",
        )
