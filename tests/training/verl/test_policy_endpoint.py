"""On one host nobody else reaches the policy that verl trains; needs Ray and verl."""

from __future__ import annotations

import json
import pickle
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import ModuleType, SimpleNamespace
from urllib.parse import urlsplit

import pytest

from sql_agent.system.servers import bearer
from sql_agent.training.verl.interprocess import RUN_VARIABLE

ray = pytest.importorskip("ray")
pytest.importorskip("verl.workers.rollout.llm_server")


@pytest.mark.slow
def test_on_one_host_the_policy_listens_at_its_own_address_only_and_wants_the_run_s_token(
    tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sql_agent.training.verl.policy_endpoint import endpoint_actors, find_endpoints

    monkeypatch.setenv(RUN_VARIABLE, "secret")  # which the actors of a cluster of this host get too
    ray.init(address="local", include_dashboard=False, num_cpus=1)
    try:
        node = ray.get_runtime_context().get_node_id()
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        with endpoint_actors(2, here=here):
            addresses = ray.get(
                [
                    each.serve.remote(None, str(tiny_model_folder), 64, {}, interrupted=True)
                    for each in find_endpoints(2)
                ]
            )
            for address in addresses:
                assert urlsplit(address).hostname == "127.0.0.1"
                with pytest.raises(urllib.error.HTTPError, match="401") as refused:
                    urllib.request.urlopen(f"{address}/models", timeout=10)
                refused.value.close()
                asked = urllib.request.Request(f"{address}/models", headers=bearer("secret"))
                with urllib.request.urlopen(asked, timeout=10) as answer:
                    assert json.load(answer)["data"][0]["id"] == "policy"
        with endpoint_actors(1):
            (address,) = ray.get(
                [
                    each.serve.remote(None, str(tiny_model_folder), 64, {}, interrupted=True)
                    for each in find_endpoints(1)
                ]
            )
            assert urlsplit(address).hostname == ray.util.get_node_ip_address()
    finally:
        ray.shutdown()


def test_the_output_kind_is_unpickled_as_vllm_s_by_the_process_that_has_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    from sql_agent.training.verl.policy_endpoint import FinalOnly

    sent = pickle.dumps({"output_kind": FinalOnly()})
    vllm = ModuleType("vllm.sampling_params")
    vllm.RequestOutputKind = SimpleNamespace(FINAL_ONLY="final")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", vllm)
    assert pickle.loads(sent) == {"output_kind": "final"}
