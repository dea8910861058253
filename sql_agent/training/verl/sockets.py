"""Keep apart the sockets over which the verl of each run on a host sends its weights to vLLM."""

from __future__ import annotations

from typing import Any


def name_by_cluster() -> None:
    """Let the job id of Ray that a process of verl reads also name the cluster: its address.

    verl 0.9 names these sockets in /tmp by the job id alone (verl-project/verl#6246), which is 01000000 for the first
    job of any cluster. So two runs on one host, each with a cluster of its own, took each other's socket when they sent
    weights at the same moment; vLLM then failed in one of them or both, and verl waited for it for ever.
    """
    from ray.runtime_context import RuntimeContext  # noqa: PLC0415  only a process of verl has Ray

    of_job = RuntimeContext.get_job_id

    def get_job_id(self: Any) -> str:
        return f"{of_job(self)}-{self.gcs_address.replace(':', '-')}"

    RuntimeContext.get_job_id = get_job_id
