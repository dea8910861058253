"""Check the private names of agent-lightning that sql_agent/rollouts uses, so that an upgrade fails here first.

The last two tests check the private names of uvicorn and verl that sql_agent/training uses.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agentlightning as agl
import pytest
import uvicorn

import sql_agent.rollouts
from sql_agent.rollouts.lit_agent import SqlLitAgent
from sql_agent.rollouts.llm_proxy import LocalLlmProxy
from sql_agent.rollouts.spans import TokenIdAdapter
from sql_agent.rollouts.store import RunStore, StoreClient
from sql_agent.training.algorithm import TrainingAlgorithm

# What we override, public methods too, because an override that agent-lightning no longer calls raises no error.
OVERRIDES = [
    (RunStore, "_post_update_rollout"),
    (RunStore, "add_many_spans"),
    (TokenIdAdapter, "_extract_tokens_from_raw"),
    (TokenIdAdapter, "_literal_eval_maybe"),
    (TokenIdAdapter, "_maybe_reward_value"),
    (TokenIdAdapter, "adapt"),
    (StoreClient, "_get_session"),
    (StoreClient, "dequeue_many_rollouts"),
    (SqlLitAgent, "training_rollout_async"),
    (SqlLitAgent, "validation_rollout_async"),
    (TrainingAlgorithm, "run"),
]
# The private methods that we call, with the arguments that we pass.
CALLED = {
    (agl.LLMProxy, "_serve_context"): "",
    (agl.LightningStoreClient, "_get_session"): "",
    (agl.InMemoryLightningStore, "_evict_spans_for_rollout"): "collections, rollout_id",
    (uvicorn.Server, "_serve"): "",
}
# The private attributes of the store that we read, with their types, and the one of its collections.
READ = {
    "_completion_events": dict,
    "_evicted_rollout_span_sets": set,
    "_start_time_by_rollout": dict,
    "_total_span_bytes": int,
}
COLLECTION_READ = "_items"


def required(function: Callable[..., Any]) -> str:
    """The names of the parameters that a call must give."""
    parameters = list(inspect.signature(function).parameters.values())
    return ", ".join(p.name for p in parameters if p.name != "self" and p.default is p.empty)


def shape(function: Callable[..., Any]) -> list[tuple[str, str, Any]]:
    """Name, kind and default of each parameter, without annotations."""
    return [(p.name, p.kind.description, p.default) for p in inspect.signature(function).parameters.values()]


def base_of(ours: type, name: str) -> type | None:
    """The class of agent-lightning whose `name` the class `ours` overrides."""
    theirs = (base for base in ours.__mro__[1:] if base.__module__.startswith("agentlightning"))
    return next((base for base in theirs if name in vars(base)), None)


@pytest.mark.parametrize(("ours", "name"), OVERRIDES, ids=lambda value: getattr(value, "__name__", value))
def test_every_override_replaces_a_method_with_the_same_parameters(ours: type, name: str) -> None:
    base = base_of(ours, name)
    assert base is not None, f"agent-lightning no longer has {name}, so nothing calls {ours.__name__}.{name} any more"
    theirs, own = shape(getattr(base, name)), shape(getattr(ours, name))
    assert own == theirs, (
        f"agent-lightning changed the parameters of {base.__name__}.{name}: {ours.__name__}.{name} takes "
        f"{inspect.signature(getattr(ours, name))}, the original {inspect.signature(getattr(base, name))}"
    )


@pytest.mark.parametrize(("owner", "name"), CALLED, ids=lambda value: getattr(value, "__name__", value))
def test_every_private_method_that_we_call_takes_our_arguments(owner: type, name: str) -> None:
    method = getattr(owner, name, None)
    assert method is not None, f"agent-lightning no longer has {owner.__name__}.{name}"
    assert required(method) == CALLED[owner, name], (
        f"agent-lightning changed the parameters of {owner.__name__}.{name}: we call it with "
        f"({CALLED[owner, name]}), it takes {inspect.signature(method)}"
    )


@pytest.mark.parametrize("name", READ)
def test_the_store_keeps_its_state_under_the_names_that_we_read(name: str) -> None:
    store = agl.InMemoryLightningStore(thread_safe=True)
    assert hasattr(store, name), f"agent-lightning's store no longer has the attribute {name}"
    kind = type(getattr(store, name))
    assert issubclass(kind, READ[name]), f"agent-lightning's store keeps a {kind.__name__} in {name}, no {READ[name]}"


async def test_the_store_s_collections_can_be_locked_queried_and_emptied() -> None:
    store = agl.InMemoryLightningStore(thread_safe=True)
    labels: list[Any] = ["rollouts", "attempts", "spans", "span_sequence_ids"]
    missing = [name for name in labels if not hasattr(store.collections, name)]
    assert not missing, f"agent-lightning's store no longer has the collections {missing}"
    rollout = await store.start_rollout(input={})
    async with store.collections.atomic(mode="rw", labels=labels) as collections:
        found = await collections.attempts.query(filter={"rollout_id": {"exact": rollout.rollout_id}})
        assert [a.rollout_id for a in found.items] == [rollout.rollout_id], (
            "agent-lightning's collections no longer find an attempt by the filter that we use"
        )
        items = getattr(collections.attempts, COLLECTION_READ, None)
        assert items is not None, f"agent-lightning's collections no longer have {COLLECTION_READ}"
        assert rollout.rollout_id in items, (
            f"agent-lightning no longer keeps attempts by rollout id in {COLLECTION_READ}"
        )
        await collections.attempts.delete(found.items)
        await collections.span_sequence_ids.pop(rollout.rollout_id)


def test_this_contract_names_every_private_name_that_the_package_uses() -> None:
    """Compare with the code: attributes that no module of the package defines, and private overrides."""
    folder = Path(sql_agent.rollouts.__file__).parent
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in folder.glob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    own = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    own |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    own.add("_exit")  # os._exit, which Python documents
    used = {n.attr for n in nodes if isinstance(n, ast.Attribute) and _is_private(n.attr)} - own
    classes = (
        RunStore,
        StoreClient,
        LocalLlmProxy,
        TokenIdAdapter,
        SqlLitAgent,
    )
    used |= {name for ours in classes for name in vars(ours) if _is_private(name) and base_of(ours, name)}
    named = {name for _, name in [*OVERRIDES, *CALLED] if _is_private(name)} | set(READ) | {COLLECTION_READ}
    assert used == named, f"add to this test or remove from it: {sorted(used ^ named)}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_uvicorn_s_private_method_takes_the_sockets_to_serve() -> None:
    serve = getattr(uvicorn.Server, "_serve", None)
    assert serve is not None, "uvicorn no longer has Server._serve, which serves without installing signal handlers"
    taken = inspect.signature(serve)
    assert "sockets" in taken.parameters, f"uvicorn's Server._serve takes {taken}: no sockets"
    assert required(serve) == "", f"uvicorn's Server._serve takes {taken}: we pass sockets only"


def test_verl_s_private_method_that_starts_agent_loops_exists() -> None:
    verl = pytest.importorskip("verl.trainer.ppo.v1.agent_loop_tq", reason="verl is installed on GPU hosts only")
    method = getattr(verl.AgentLoopManagerTQ, "_init_agent_loop_workers", None)
    assert method is not None, "verl no longer has AgentLoopManagerTQ._init_agent_loop_workers"
