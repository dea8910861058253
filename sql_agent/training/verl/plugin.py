"""Prepare every process of verl, which imports this module because VERL_USE_EXTERNAL_MODULES names it.

Nothing here may import verl, because verl's __init__ imports this module before verl is complete.
"""

from __future__ import annotations

import logging
from typing import Any

from sql_agent.training.verl import attention


def name_sockets_by_cluster() -> None:
    """Add the address of the Ray cluster to the job id that verl reads, by which verl names its sockets in /tmp.

    verl 0.9 names the sockets over which it sends weights to vLLM by the job id alone (verl-project/verl#6246), and the
    first job of every cluster has the id 01000000. Two runs on one host, each with a cluster, took each other's socket
    when they sent weights at the same moment; vLLM failed in one or both, and verl waited for it for ever.
    """
    from ray.runtime_context import RuntimeContext  # noqa: PLC0415  only processes of verl have Ray

    job_id_of = RuntimeContext.get_job_id

    def get_job_id(self: Any) -> str:
        return f"{job_id_of(self)}-{self.gcs_address.replace(':', '-')}"

    RuntimeContext.get_job_id = get_job_id


attention.register()
name_sockets_by_cluster()
logging.getLogger("openai.agents").setLevel(logging.WARNING)
