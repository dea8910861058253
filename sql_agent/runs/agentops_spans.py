"""Send rollouts to AgentOps: a span for each agent, model reply and query."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import httpx
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sql_agent.config.endpoints import AgentOpsSettings
from sql_agent.errors import TrainingError
from sql_agent.runs.trackers import RolloutLine, TrackedRun, Tracker

_TIMEOUT_S = 30
_NANO = 1_000_000_000
_KIND = "agentops.span.kind"


@contextmanager
def open_agentops(run: TrackedRun) -> Iterator[Tracker]:
    """Log in to AgentOps, and yield a tracker that sends rollouts but no metrics.

    The spans are made here, from the records of rollouts, because a second tracer in the runners would also send its
    spans to the store.
    """
    settings = AgentOpsSettings()
    key = settings.api_key.get_secret_value() if settings.api_key else ""
    login = httpx.post(f"{settings.api_endpoint}/v3/auth/token", json={"api_key": key}, timeout=_TIMEOUT_S)
    if login.status_code != httpx.codes.OK or "token" not in login.json():
        raise TrainingError(
            f"AgentOps refused the login with status {login.status_code}", hint="check AGENTOPS_API_KEY"
        )
    account = login.json()
    exporter = OTLPSpanExporter(
        settings.exporter_endpoint, headers={"Authorization": f"Bearer {account['token']}"}, timeout=_TIMEOUT_S
    )
    resource = {"service.name": run.project, "agentops.project.id": account.get("project_id", ""), "run": run.name}
    finished = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create(resource), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(finished))
    tracer = provider.get_tracer("sql_agent")

    def table(step: int, name: str, rollouts: Sequence[RolloutLine]) -> None:
        for rollout in rollouts:
            if rollout["record"]:
                _write_spans(tracer, name, rollout, rollout["record"])
        spans = finished.get_finished_spans()
        finished.clear()
        if spans and exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise TrainingError(f"AgentOps did not accept {len(spans)} spans of step {step}")

    yield Tracker(lambda _step, _values: None, table)
    exporter.shutdown()  # type: ignore[no-untyped-call]


def _write_spans(tracer: trace.Tracer, name: str, rollout: RolloutLine, record: Mapping[str, Any]) -> None:
    """Write a span for a rollout, with a child span for each model reply and each query, in order."""
    end = time.time_ns()
    about = {
        _KIND: "agent",
        "agent.name": "sql_agent",
        "agentops.entity.input": record["question"]["question"],
        "agentops.entity.output": record["answer"],
        "rollout.id": rollout["rollout_id"],
        "rollout.table": name,
        "rollout.step": rollout["step"],
        "rollout.outcome": record["outcome"],
    }
    if reward := record.get("reward"):
        about["rollout.reward"] = reward["rule"] + reward["judge"]
    now = end - int(record["seconds"] * _NANO)
    agent = tracer.start_span("sql_agent", start_time=now, attributes=about)
    inside = trace.set_span_in_context(agent)
    for reply, call in zip_longest(record.get("replies", ()), record["calls"]):
        for title, part, attributes in (("chat", reply, _chat), ("query_database_by_sql", call, _query)):
            if part:
                span = tracer.start_span(title, inside, start_time=now, attributes=attributes(part))
                now += int(part["seconds"] * _NANO)
                span.end(now)
    agent.end(max(now, end))


def _chat(reply: Mapping[str, Any]) -> dict[str, Any]:
    written = [reply["text"], *(f"{call['name']}({call['arguments']})" for call in reply["tool_calls"])]
    return {
        _KIND: "llm",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "\n".join(part for part in written if part),
        "gen_ai.usage.prompt_tokens": reply["prompt_tokens"],
        "gen_ai.usage.completion_tokens": reply["completion_tokens"],
    }


def _query(call: Mapping[str, Any]) -> dict[str, Any]:
    answer = json.dumps(call["answer"], ensure_ascii=False)
    return {_KIND: "tool", "tool.name": "query_database_by_sql", "tool.parameters": call["sql"], "tool.result": answer}
