"""Prepare each process of verl; verl imports this module, because VERL_USE_EXTERNAL_MODULES names it.

This module must not import verl, because verl's `__init__` imports this module before the import of verl is complete.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
from typing import Any

from sql_agent.training.policy import attention


def name_sockets_by_cluster() -> None:
    """Append the address of the Ray cluster to Ray's job id, so that runs on one host have different sockets in /tmp.

    verl 0.9 names the sockets that send weights to vLLM by the job id alone (verl-project/verl#6246), and the first job
    of every cluster has the id 01000000. Two runs on one host, each with its own cluster, used each other's socket when
    they sent weights at the same moment. Then vLLM failed, and verl waited for ever.
    """
    from ray.runtime_context import RuntimeContext  # noqa: PLC0415  Ray is installed with verl only

    job_id_of = RuntimeContext.get_job_id

    def get_job_id(self: Any) -> str:
        return f"{job_id_of(self)}-{self.gcs_address.replace(':', '-')}"

    RuntimeContext.get_job_id = get_job_id


def hide_key_from_engine() -> None:
    """Remove the API key of vLLM's server in the processes of its engine, which multiprocessing starts.

    vLLM's cache of compiled graphs is keyed by all variables of vLLM, and each run has another key.
    """
    if multiprocessing.parent_process() is not None:
        os.environ.pop("VLLM_API_KEY", None)


attention.register()
hide_key_from_engine()
name_sockets_by_cluster()
logging.getLogger("openai.agents").setLevel(logging.WARNING)
