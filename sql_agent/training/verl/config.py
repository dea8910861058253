"""Convert our settings into verl's configuration (nested dicts) without importing verl."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from sql_agent.config.settings import Settings
from sql_agent.errors import ConfigError
from sql_agent.system.messages import first_problem
from sql_agent.training.verl.interprocess import TEMPLATE_SETTINGS
from sql_agent.training.verl.memory import MemoryPlan, plan_memory, refuse, rollout_length

_HERE = "sql_agent.training.verl"
PACKED_ATTENTION = "torch_varlen"  # the name in policy/attention.py, which imports torch
GRPO = Path(__file__).with_name("grpo.toml")
_NPU = Path(__file__).with_name("npu.toml")
_RECIPES = {name: Path(__file__).with_name(f"{name}.toml") for name in ("spider", "ehrsql")}


class OwnOptions(BaseModel):
    """Our own options in verl's configuration, such as verl.config.sql_agent.level=transition."""

    model_config = ConfigDict(extra="forbid")
    endpoints: PositiveInt = 4  # number of processes that render and parse the policy's conversations
    # "trajectory" joins the turns of a rollout; "transition" makes one sequence of each turn.
    level: Literal["trajectory", "transition"] = "trajectory"


def defaults(task: str, *, npu: bool = False) -> list[Path]:
    """Return the files with this backend's defaults for `task`; later files take precedence over earlier ones."""
    return [GRPO, *([_RECIPES[task]] if task in _RECIPES else []), *([_NPU] if npu else [])]


def trains_on_npu(settings: Settings) -> bool:
    """Return whether `verl.config.trainer.device` is "npu", which `--device npu` sets."""
    return bool(settings.verl.config.get("trainer", {}).get("device") == "npu")


def own_options(settings: Settings) -> OwnOptions:
    """Return the options of `verl.config.sql_agent`. Raises ConfigError when an option is unknown or wrong."""
    try:
        return OwnOptions.model_validate(settings.verl.config.get("sql_agent", {}))
    except ValidationError as error:
        raise ConfigError(
            f"verl.config.sql_agent: {first_problem(error)}",
            hint=f"the options are {' and '.join(OwnOptions.model_fields)}",
        ) from None


def verl_options(settings: Settings, *, run: Path, rollout_server: str, resume: bool) -> dict[str, Any]:
    """Convert `settings` into nested options of verl; `verl_main.py` later merges the user's `verl.config` over them.

    `run` is the run's folder, and `rollout_server` the URL at which verl requests rollouts. The path of the policy is
    `settings.model`; after supervised fine-tuning, `verl_main.py` replaces it with the path of the fine-tuned model.
    Raises ConfigError when the settings contradict each other or the run does not fit into the memory of a GPU.
    """
    train, verl = settings.train, settings.verl
    check(settings)
    memory = plan_memory(settings)
    refuse(settings, memory)
    return {
        "sql_agent": {
            "rollout_server": rollout_server,
            **own_options(settings).model_dump(),
            **_template_settings(settings),
        },
        "data": {
            "train_files": str(run / "data" / "train.parquet"),
            "val_files": str(run / "data" / "val.parquet"),
            "train_batch_size": train.questions_per_step,
            "seed": settings.seed,
        },
        "actor_rollout_ref": {
            "model": {
                "path": settings.model.rstrip("/"),  # verl refuses a slash at the end
                "lora_rank": verl.lora_rank,
                "lora_alpha": 2 * verl.lora_rank,
                # Adapters are merged before the weights are sent to vLLM, because on one GPU verl sends no adapters.
                "lora": {"merge": verl.lora_rank > 0},
                "enable_gradient_checkpointing": memory.checkpointing,
                "override_config": {"attn_implementation": PACKED_ATTENTION},
                "external_lib": f"{_HERE}.workers",
            },
            "actor": {
                "optim": {"lr": train.lr},
                "clip_ratio_low": train.clip_low,
                "clip_ratio_high": train.clip_high,
                "grad_clip": 1.0,
                "use_kl_loss": train.kl_coef > 0,
                "kl_loss_coef": train.kl_coef,
                "ppo_mini_batch_size": train.questions_per_step // train.minibatches,
                "ppo_max_token_len_per_gpu": memory.tokens,
                "data_loader_seed": settings.seed,
                # With LoRA the model's weights are frozen, so they need no more precision than the forward pass.
                "fsdp_config": {"model_dtype": "bfloat16" if verl.lora_rank else "fp32"},
            },
            "rollout": _rollout(settings, memory),
        },
        "trainer": _trainer(settings, run, resume=resume),
    }


def _template_settings(settings: Settings) -> dict[str, Any]:
    agent = settings.agent
    if agent.chat_template is not None:  # must be an absolute path, because verl has another working directory
        agent = agent.model_copy(update={"chat_template": agent.chat_template.resolve()})
    return agent.model_dump(mode="json", include=set(TEMPLATE_SETTINGS))


def check(settings: Settings) -> None:
    """Raise ConfigError when the settings contradict each other."""
    train, verl = settings.train, settings.verl
    own_options(settings)
    if train.questions_per_step % train.minibatches:
        raise ConfigError(
            f"train.questions_per_step={train.questions_per_step} is not a multiple of "
            f"train.minibatches={train.minibatches}",
            hint="set train.questions_per_step to a multiple of train.minibatches",
        )
    if verl.config.get("algorithm", {}).get("filter_groups"):
        raise ConfigError(
            "verl.config.algorithm.filter_groups has no effect", hint="use verl.dynamic_sampling=10 instead"
        )
    if verl.nnodes > 1 and verl.host == "127.0.0.1":
        raise ConfigError(
            f"verl.nnodes={verl.nnodes}, but other hosts cannot reach 127.0.0.1, the value of verl.host",
            hint="set verl.host to this host's address in the cluster",
        )
    if verl.trainer_mode == "separate_async" and verl.n_gpus < 2:
        raise ConfigError("verl.trainer_mode=separate_async needs at least two GPUs", hint="use --n-gpus 2")


def verl_environment() -> dict[str, str]:
    """Return the environment variables that every process of verl needs."""
    package_root = str(Path(__file__).resolve().parents[3])
    # A Ray cluster started by restart_ray.sh rejects clients that lack the cluster's token. Other clusters ignore it.
    token = "RAY_ADDRESS" in os.environ and (Path.home() / ".ray" / "auth_token").exists()
    authentication = {"RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "token")} if token else {}
    return authentication | {
        "PYTHONPATH": os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH", "")])),
        "VERL_USE_EXTERNAL_MODULES": f"{_HERE}.plugin",
        "TOKENIZERS_PARALLELISM": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "RAY_DEDUP_LOGS": "0",
        # verl turns the cache of compiled graphs off, because torch before 2.10 did not write its files atomically.
        "VLLM_DISABLE_COMPILE_CACHE": os.environ.get("VLLM_DISABLE_COMPILE_CACHE", "0"),
        # Ray keeps at most so many task events of 3 KB each. A run reaches Ray's default, 100,000, in 15 minutes.
        "RAY_task_events_max_num_task_in_gcs": "10000",
    }


def _rollout(settings: Settings, memory: MemoryPlan) -> dict[str, Any]:
    agent, verl = settings.agent, settings.verl
    options: dict[str, Any] = {
        "n": settings.train.group_size,
        "temperature": agent.temperature,
        "top_p": 1.0,
        "val_kwargs": {"temperature": agent.val_temperature, "top_p": 1.0, "do_sample": agent.val_temperature > 0},
        "gpu_memory_utilization": round(memory.vllm / memory.card.total, 4),
        "max_model_len": rollout_length(settings),
        "seed": settings.seed,
        "agent": {
            "default_agent_loop": "lightning",
            "agent_loop_config_path": str(Path(__file__).with_name("agent_loops.yaml")),
            "agent_loop_manager_class": f"{_HERE}.agent_loop.LightningAgentLoopManager",
        },
    }
    if memory.cache is not None:
        # Otherwise vLLM measures the GPU's used memory while it starts, and fails if another run's use changes
        # meanwhile.
        options["engine_kwargs"] = {"vllm": {"kv_cache_memory_bytes": memory.cache}}
    if verl.trainer_mode == "separate_async":
        options |= {
            "nnodes": verl.nnodes,
            "n_gpus_per_node": verl.n_gpus // 2,
            "checkpoint_engine": {"backend": "hccl" if trains_on_npu(settings) else "nccl"},
        }
    return options


def _trainer(settings: Settings, run: Path, *, resume: bool) -> dict[str, Any]:
    train, verl = settings.train, settings.verl
    buffer = "PromptReplayBuffer" if verl.trainer_mode == "sync" else "PromptReplayBufferAsync"
    return {
        "n_gpus_per_node": verl.n_gpus // 2 if verl.trainer_mode == "separate_async" else verl.n_gpus,
        "nnodes": verl.nnodes,
        "total_training_steps": train.steps,
        "save_freq": train.save_every,
        "test_freq": verl.test_every or train.steps,
        "val_before_train": not resume,
        "max_actor_ckpt_to_keep": train.keep_checkpoints,
        "default_local_dir": str(run / "checkpoints"),
        "resume_mode": "auto" if resume else "disable",
        "project_name": "sql-agent",
        "experiment_name": run.name,
        "v1": {
            "trainer_mode": verl.trainer_mode,
            "separate_async": {"parameter_sync_step": train.minibatches},
            "sampler": {
                "sync_refill_failed_groups": verl.trainer_mode == "sync",
                "custom_sampler": {"path": f"pkg://{_HERE}.agent_loop", "name": buffer},
                "sampler_kwargs": {
                    "informative_only": verl.dynamic_sampling > 0,
                    "questions_per_step": train.questions_per_step,
                },
            },
        },
    }
