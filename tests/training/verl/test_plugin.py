"""Two runs on one host do not take each other's weights."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

PLUGIN = "sql_agent.training.verl.plugin"


class ContextOfFirstJob:
    """Ray's context as every cluster gives it to the processes of its first job."""

    def __init__(self, gcs_address: str) -> None:
        self.gcs_address = gcs_address

    def get_job_id(self) -> str:
        return "01000000"


def test_what_verl_names_its_sockets_by_differs_between_clusters_and_not_within_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = type("RuntimeContext", (ContextOfFirstJob,), {})
    ray = ModuleType("ray.runtime_context")
    ray.RuntimeContext = context  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.runtime_context", ray)
    monkeypatch.delitem(sys.modules, PLUGIN, raising=False)
    importlib.import_module(PLUGIN)
    monkeypatch.delitem(sys.modules, PLUGIN)
    ids = [context(address).get_job_id() for address in ("10.0.0.1:34517", "10.0.0.1:39031", "10.0.0.1:34517")]
    assert ids[0] == ids[2] != ids[1]
    assert all(part not in name for name in ids for part in "/: "), "it is part of the name of a file"
