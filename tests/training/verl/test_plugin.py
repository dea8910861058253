"""Two runs on one host do not take each other's weights, and use each other's compiled graphs."""

from __future__ import annotations

import importlib
import multiprocessing
import os
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


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> type[ContextOfFirstJob]:
    """Ray's context after the plugin was imported."""
    context = type("RuntimeContext", (ContextOfFirstJob,), {})
    ray = ModuleType("ray.runtime_context")
    ray.RuntimeContext = context  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.runtime_context", ray)
    monkeypatch.delitem(sys.modules, PLUGIN, raising=False)
    importlib.import_module(PLUGIN)
    return context


def test_what_verl_names_its_sockets_by_differs_between_clusters_and_not_within_one(
    context: type[ContextOfFirstJob],
) -> None:
    ids = [context(address).get_job_id() for address in ("10.0.0.1:34517", "10.0.0.1:39031", "10.0.0.1:34517")]
    assert ids[0] == ids[2] != ids[1]
    assert all(part not in name for name in ids for part in "/: "), "it is part of the name of a file"


@pytest.mark.usefixtures("context")
def test_the_processes_of_an_engine_do_not_see_the_key_by_which_vllm_would_compile_anew_for_each_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plugin = sys.modules[PLUGIN]
    monkeypatch.setenv("VLLM_API_KEY", "of this run")
    plugin.hide_key_from_engine()
    assert os.environ["VLLM_API_KEY"], "vLLM's server needs the key"
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: "vLLM's server")
    plugin.hide_key_from_engine()
    assert "VLLM_API_KEY" not in os.environ
