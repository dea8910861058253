"""Turn the command line of `sql-agent train` into the settings of a run."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from sql_agent.cli.parser import help_text
from sql_agent.cli.task_flags import add_task_flags, task_flags
from sql_agent.config.settings import Settings, TeacherSettings, flatten, load_settings
from sql_agent.reward.factory import judge_name
from sql_agent.runs.resume import settings_to_resume
from sql_agent.tasks.task import given_source
from sql_agent.training import local
from sql_agent.training.verl.config import defaults as verl_defaults

_CI_STEPS = 20
_LAPTOP = Path(local.__file__).with_name("laptop.toml")


_DESCRIPTION = """\
Train a small model to answer medical questions by querying a database with SQL.

Without arguments the embedded SmolLM2-135M-Instruct is trained on the sample
database, which is made when it is missing. A run writes to runs/NAME: a report,
every rollout, metrics and checkpoints."""

_EXAMPLES = """
  sql-agent train --ci-fast                  one step, to see that it works
  sql-agent train --ci run_name=first        some minutes, kept in runs/first
  sql-agent train --ci --resume run_name=first
  sql-agent train --model Qwen/Qwen2.5-0.5B-Instruct --backend verl --n-gpus 2
  sql-agent train train.lr=1e-5 agent.max_turns=3 judge.name=llm

AGL_CURRENT_ROLE=algorithm|runner|both and AGL_MANAGED_STORE=0|1 are read from
the environment or .env; they split a run over terminals that share a store."""


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line of `sql-agent train`."""
    parser = argparse.ArgumentParser(
        prog="sql-agent train",
        usage="sql-agent train [--ci | --ci-fast] [FLAGS] [section.key=value ...]",
        **help_text(_DESCRIPTION, _EXAMPLES),
    )
    parser.add_argument("overrides", nargs="*", metavar="section.key=value",
                        help="any setting, stronger than a flag; `sql-agent settings` lists them")  # fmt: skip
    _add_run_flags(parser)
    add_task_flags(parser)
    data = parser.add_argument_group("data")
    data.add_argument("--lang", choices=("en", "zh"), help="language of the sample and of the prompts (default: en)")
    data.add_argument("--train-file", type=Path, metavar="FILE", help="questions to train on, parquet or JSONL")
    data.add_argument("--val-file", type=Path, metavar="FILE", help="questions to validate on, parquet or JSONL")
    data.add_argument("--mapping", type=Path, metavar="FILE", help="TOML file that names the columns of these files")
    _add_model_flags(parser)
    gpus = parser.add_argument_group("GPUs (backend verl)")
    gpus.add_argument("--device", choices=("gpu", "npu"), help="npu trains on Ascend NPUs, which is untested")
    gpus.add_argument("--n-gpus", type=int, metavar="N", help="GPUs of each host (default: 1)")
    gpus.add_argument("--nnodes", type=int, metavar="N", help="hosts of the Ray cluster (default: 1)")
    gpus.add_argument("--trainer-mode", choices=("sync", "colocate_async", "separate_async"),
                      help="whether rollouts and updates take turns (sync, default) or overlap")  # fmt: skip
    return parser.parse_intermixed_args(argv)


def _add_run_flags(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("run")
    length = run.add_mutually_exclusive_group()
    length.add_argument(
        "--ci",
        action="store_true",
        help=f"a run of {_CI_STEPS} steps; on a CPU, with the embedded model and the sample, of fewer, by the "
        "recipe of docs/results.md",
    )
    length.add_argument("--ci-fast", action="store_true", help="a run of one step")
    length.add_argument("--dev", action="store_true", help="no training: ask up to ten validation questions through "
                        "runner, store and proxy, of the model behind OPENAI_API_BASE where it is set, and print every "
                        "span")  # fmt: skip
    run.add_argument("--backend", choices=("auto", "local", "verl"),
                     help="local trains on a CPU, verl on GPUs; auto (default) takes verl where it is installed and a "
                     "GPU is there")  # fmt: skip
    run.add_argument("--resume", action="store_true", help="continue the run called run_name")
    run.add_argument("--config", type=Path, metavar="FILE", help="a TOML file of settings, weaker than all others")
    run.add_argument("--n-runners", type=int, metavar="N", help="processes that run the agent (default: 4)")
    run.add_argument(
        "--external-store-address", metavar="URL", help="a store started with `agl store --host 127.0.0.1 --port N`"
    )
    run.add_argument("--llm-proxy", action="store_true", help="accepted for old scripts; the proxy is always used")
    run.add_argument("-q", "--quiet", action="store_true", help="with AGL_CURRENT_ROLE=runner, no line a rollout")
    run.add_argument("--debug", action="store_true", help="show the logs of every part")


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("model")
    model.add_argument("--model", metavar="PATH_OR_ID",
                       help="a Hugging Face folder or id (default: the embedded SmolLM2-135M-Instruct)")  # fmt: skip
    model.add_argument("--lora-rank", type=int, metavar="N", help="train adapters of this rank only, not all weights "
                       "(backend verl; default: 0, all weights)")  # fmt: skip
    level = model.add_mutually_exclusive_group()
    level.add_argument("--trajectory-level", dest="level", action="store_const", const="trajectory",
                       help="turns that continue each other are one training sequence (default)")  # fmt: skip
    level.add_argument("--transition-level", dest="level", action="store_const", const="transition",
                       help="every turn is a training sequence of its own (backend verl)")  # fmt: skip


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Load the settings of the command line, over the defaults of the chosen backend.

    With --resume they are those of the run, and the command line may change only what does not change its result.
    """
    flags = _flags(arguments)
    settings = load_settings(arguments.overrides, config_file=arguments.config, flags=_given(flags))
    if arguments.resume:
        named = {".".join(key) for key in flatten(_given(flags))}
        return settings_to_resume(settings, named | {item.partition("=")[0] for item in arguments.overrides})
    if arguments.dev:
        return settings.model_copy(update={"backend": "local"})
    if chosen_backend(settings) == "verl":
        verl = load_settings(
            arguments.overrides,
            config_file=arguments.config,
            flags=_given(flags),
            defaults=verl_defaults(settings.task, settings.verl.device),
        )
        return verl.model_copy(update={"backend": "verl"})
    recipe = [_LAPTOP] if (arguments.ci or arguments.ci_fast) and _asks_the_sample(settings) else []
    if recipe and arguments.ci:
        flags["train"]["steps"] = None  # as many as the recipe has
    if arguments.ci_fast:
        flags["data"]["natural_questions"] = 0  # on a CPU they would take longer than the step itself
        if recipe:
            flags["train"]["questions_per_step"] = 2  # shows the step in a quarter of its time
    return load_settings(arguments.overrides, config_file=arguments.config, flags=_given(flags), defaults=recipe)


def settings_of_host(arguments: argparse.Namespace) -> Settings:
    """Load the settings that a runner is given itself; what decides its rollouts comes from its algorithm."""
    return load_settings(arguments.overrides, config_file=arguments.config, flags=_given(_flags(arguments)))


def _flags(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that have a flag, None where it was not given."""
    return {
        "model": arguments.model,
        "backend": arguments.backend,
        "lang": arguments.lang,
        **task_flags(arguments),
        "data": {"train_file": arguments.train_file, "val_file": arguments.val_file, "mapping": arguments.mapping},
        "runner": {"n_runners": arguments.n_runners},
        "verl": {
            "device": arguments.device,
            "n_gpus": arguments.n_gpus,
            "nnodes": arguments.nnodes,
            "lora_rank": arguments.lora_rank,
            "trainer_mode": arguments.trainer_mode,
            "level": arguments.level,
        },
        "train": {"steps": 1 if arguments.ci_fast else _CI_STEPS if arguments.ci and not arguments.resume else None},
    }


def _asks_the_sample(settings: Settings) -> bool:
    """Whether the embedded model is trained on the sample's own questions, for which laptop.toml was made."""
    given = (settings.model, given_source(settings), settings.data.train_file)
    return settings.task == "medical" and not any(given)


def with_judge(settings: Settings) -> tuple[Settings, str]:
    """Return `settings` with the judge that "auto" stands for, and a phrase that names it and says why it was taken.

    Written into the run's config.json, so that a resumed run keeps its judge when the environment has changed.
    """
    name = judge_name(settings.judge, TeacherSettings())
    why = "" if settings.judge.name == name else f" (TEACHER_MODEL is {'set' if name == 'llm' else 'not set'})"
    judge = settings.judge.model_copy(update={"name": name})
    return settings.model_copy(update={"judge": judge}), f"judge {name}{why}"


def chosen_backend(settings: Settings) -> Literal["local", "verl"]:
    """Return the backend of `settings`; "auto" means verl where it is installed and a GPU is there, or for an NPU."""
    if settings.backend != "auto":
        return settings.backend
    if settings.verl.device == "npu":
        return "verl"
    return "verl" if verl_is_installed() and shutil.which("nvidia-smi") else "local"


def verl_is_installed() -> bool:
    """Return whether verl can be imported, without importing it, because this process must not hold torch."""
    return importlib.util.find_spec("verl") is not None


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    """Return only the flags that were given."""
    result = {key: _given(value) if isinstance(value, dict) else value for key, value in flags.items()}
    return {key: value for key, value in result.items() if value is not None and value != {}}
