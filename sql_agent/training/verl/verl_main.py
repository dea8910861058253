"""Entry point of verl's process, which `run_verl.py` starts: python -m sql_agent.training.verl.verl_main OPTIONS.json

verl runs in a separate process, because the main process forks runners and proxies and therefore must not import torch
or Ray.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import ray
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config
from verl.utils.device import auto_set_device

from sql_agent.training.verl.interprocess import end_of_start_part, run_token, token_environment, wait_for_sft_result
from sql_agent.training.verl.policy_endpoint import endpoint_actors
from sql_agent.training.verl.trainer import TaskRunner
from sql_agent.training.verl.warm_python import PYTHON_VARIABLE


def build_config(options: dict[str, Any], overrides: dict[str, Any]) -> DictConfig:
    """Merge verl's defaults, our `options` and the user's `overrides`; later ones take precedence.

    Raises OmegaConfBaseException when a key of `overrides` is neither in verl's defaults nor in `options`.
    """
    with initialize_config_module(config_module="verl.trainer.config", version_base=None):
        config = compose("ppo_trainer")
    OmegaConf.set_struct(config, False)
    config = OmegaConf.merge(config, options)
    OmegaConf.set_struct(config, True)
    _allow_keys_of_empty_dicts(config)
    config = OmegaConf.merge(config, overrides)
    OmegaConf.set_struct(config, False)
    return config


def _allow_keys_of_empty_dicts(node: DictConfig) -> None:
    """Allow new keys in each empty dict of `node`, because verl passes these dicts to libraries like vLLM."""
    for key in node:
        child = OmegaConf.select(node, str(key))
        if OmegaConf.is_dict(child):
            if child:
                _allow_keys_of_empty_dicts(child)
            else:
                OmegaConf.set_struct(child, False)


def main(path: Path) -> int:
    """Train with the options of the JSON file `path`; return the exit code, which is 2 for a wrong `verl.config`."""
    given = json.loads(path.read_text("utf-8"))
    try:
        config = build_config(given["options"], given["overrides"])
    except OmegaConfBaseException as error:
        print(f"error: verl.config: {error}", file=sys.stderr)
        return 2
    auto_set_device(config)
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    end_of_start_part("imports of verl's driver")
    _start_ray(config, given["environment"])
    end_of_start_part("Ray")
    try:
        node = ray.get_runtime_context().get_node_id()
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        # The task runner must be on this host, because the main process reads the metrics file of the task runner.
        runner = ray.remote(TaskRunner).options(scheduling_strategy=here).remote()
        if given["sft_result"] is not None:
            config.actor_rollout_ref.model.path = wait_for_sft_result(Path(given["sft_result"]))
            end_of_start_part("supervised fine-tuning")
        with endpoint_actors(config.sql_agent.endpoints, here=here if config.trainer.nnodes == 1 else None):
            ray.get(runner.run.remote(config))
    finally:
        ray.shutdown()
    return 0


def _start_ray(config: DictConfig, environment: dict[str, str]) -> None:
    """Join the cluster at RAY_ADDRESS, or start a cluster on this host."""
    options = OmegaConf.to_container(config.ray_kwargs.ray_init)
    runtime = get_ppo_ray_runtime_env(config) | _not_none(options.pop("runtime_env"))
    passed_on = {k: os.environ[k] for k in ("HF_HUB_OFFLINE", "VLLM_USE_FLASHINFER_SAMPLER") if k in os.environ}
    # A cluster that this process starts inherits the run's token as an environment variable. Only a cluster that is
    # already running gets the token in runtime_env, which Ray writes to its logs.
    if "RAY_ADDRESS" in os.environ:
        passed_on |= token_environment(run_token())
    runtime["env_vars"] = {**runtime["env_vars"], **passed_on, **environment, "TRANSFER_QUEUE_ENABLE": "1"}
    if PYTHON_VARIABLE in os.environ and "RAY_ADDRESS" not in os.environ:
        runtime.setdefault("py_executable", os.environ[PYTHON_VARIABLE])
    cluster: dict[str, Any] = {} if "RAY_ADDRESS" in os.environ else {"address": "local", "include_dashboard": False}
    ray.init(runtime_env=runtime, log_to_driver=True, **(cluster | _not_none(options)))


def _not_none(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
