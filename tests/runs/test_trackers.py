"""Trackers get the same names in their own offline files, and one that fails never stops a run."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sql_agent.config.settings import Settings, load_settings
from sql_agent.errors import ConfigError
from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.runs import trackers
from sql_agent.runs.run_log import RunLog
from sql_agent.runs.trackers import TrackedRun, Trackers, check_trackers, open_swanlab
from sql_agent.training.serving.server import ServerThread
from tests.support.records import record
from tests.support.small_run import rollout_line

VALIDATED = {"natural": {"accurate": 0.75}}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "SWANLAB_MODE"):
        monkeypatch.setenv(name, "offline")


def follow(folder: Path, said: list[str], *changes: str) -> Path:
    """Write a step and a validation of a run as a training does, with trackers; returns where they write."""
    settings = load_settings([f"runs_dir={folder}", "run_name=night", *changes])
    log = RunLog.create(settings)
    log.trackers = Trackers(settings, log.folder, said.append)
    for step, loss in ((1, 2.5), (2, 1.5)):
        log.sft(step, 2, loss)
    log.track_sft()
    log.validation(0, VALIDATED)
    log.rollouts(1, "train", [FinishedRollout("r1", "1-0", record(1), 1.1, (), (), None)], {"r1": 0.5})
    log.metrics(1, {"reward/mean": 0.5})
    log.trackers.close()
    return log.folder / "tracking"


@pytest.mark.slow
def test_wandb_gets_metrics_table_and_configuration_offline(tmp_path: Path, said: list[str], offline: None) -> None:
    files = follow(tmp_path, said, "tracking.to=wandb")
    assert said == []
    (written,) = files.glob("wandb/offline-run-*")
    (stream,) = written.glob("run-*.wandb")
    for name in (b"train/reward/mean", b"val/natural/accurate", b"sft/loss", b"questions_per_step"):
        assert name in stream.read_bytes()
    (table,) = written.glob("files/media/table/train/rollouts_*.json")
    (row,) = json.loads(table.read_text())["data"]
    assert row[2] == "In which form does Drug 1 come?"
    assert row[6:9] == [1.1, 1.0, 0.5], "reward, judge's part, advantage"


def test_swanlab_gets_metrics_table_and_configuration_offline(tmp_path: Path, said: list[str], offline: None) -> None:
    files = follow(tmp_path, said, "tracking.to=swanlab", "tracking.project=pharmacy")
    assert said == []
    (written,) = files.glob("swanlab/run-*")
    (stream,) = written.glob("*.swanlab")
    for name in (b"train/reward/mean", b"val/natural/accurate", b"sft/loss", b"pharmacy"):
        assert name in stream.read_bytes()
    assert "questions_per_step" in (written / "files" / "config.yaml").read_text()
    (table,) = written.glob("media/echarts/*.json")
    assert "In which form does Drug 1 come?" in table.read_text()


def test_a_resumed_run_keeps_its_id_at_swanlab(tmp_path: Path, offline: None) -> None:
    run = TrackedRun(name="night", id="abcdef123456", project="p", config={}, files=tmp_path)
    for step in (1, 2):
        with open_swanlab(run) as tracker:
            tracker.metrics(step, {"train/reward/mean": 0.5})
    written = list((tmp_path / "swanlab").glob("run-*"))
    assert written and all(folder.name.endswith("-abcdef123456") for folder in written)


def test_tensorboard_reads_metrics_and_a_table(tmp_path: Path, said: list[str]) -> None:
    files = follow(tmp_path, said, "tracking.to=tensorboard")
    events = EventAccumulator(str(files / "tensorboard")).Reload()
    assert said == []
    assert events.Scalars("train/reward/mean")[0].value == 0.5
    assert [(e.step, e.value) for e in events.Scalars("sft/loss")] == [(1, 2.5), (2, 1.5)]
    assert [(e.step, e.value) for e in events.Scalars("val/natural/accurate")] == [(0, 0.75)]
    (table,) = events.Tensors("train/rollouts/text_summary")
    assert b"In which form does Drug 1 come?" in table.tensor_proto.string_val[0]


def test_a_tracker_that_fails_is_named_once_and_the_others_and_the_run_go_on(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # no ~/.netrc
    files = follow(tmp_path / "runs", said, "tracking.to=wandb,tensorboard")
    assert len(said) == 1
    assert "Tracker wandb failed" in said[0] and "WANDB_MODE=offline" in said[0]
    assert EventAccumulator(str(files / "tensorboard")).Reload().Scalars("train/reward/mean")
    assert (files.parent / "metrics.jsonl").exists()


def test_a_tracker_that_hangs_is_left_behind(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(trackers, "_CLOSE_S", 0.05)
    monkeypatch.setattr(trackers, "_open", lambda *_: release.wait())
    follow(tmp_path, said, "tracking.to=tensorboard")
    release.set()
    assert said[0].startswith("Tracker tensorboard is still sending")


def test_a_tracker_that_is_not_installed_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(["tracking.to=swanlab,tensorboard"])
    check_trackers(settings)
    monkeypatch.setattr(trackers, "_PACKAGES", {"swanlab": "not_there", "tensorboard": "tensorboardX"})
    with pytest.raises(ConfigError, match=r"tracking\.to names swanlab") as refused:
        check_trackers(settings)
    assert refused.value.hint == "pip install not_there"


class AgentOps:
    """A server that takes what AgentOps takes."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.tokens: list[str] = []
        app = FastAPI()

        @app.post("/v3/auth/token")
        async def login(http: Request) -> dict[str, str]:
            assert (await http.json())["api_key"] == "secret"
            return {"token": "jwt", "project_id": "p1"}

        @app.post("/v1/traces")
        async def traces(http: Request) -> dict[str, str]:
            self.tokens.append(http.headers["authorization"])
            body = await http.body()
            sent = ExportTraceServiceRequest.FromString(
                gzip.decompress(body) if http.headers.get("content-encoding") == "gzip" else body
            )
            self.spans += [s for r in sent.resource_spans for scope in r.scope_spans for s in scope.spans]
            return {}

        self.server = ServerThread()
        self.server.start(app)


@pytest.fixture
def agentops(monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentOps]:
    server = AgentOps()
    address = server.server.base_url.removesuffix("/v1")
    monkeypatch.setenv("AGENTOPS_API_KEY", "secret")
    monkeypatch.setenv("AGENTOPS_API_ENDPOINT", address)
    monkeypatch.setenv("AGENTOPS_EXPORTER_ENDPOINT", f"{address}/v1/traces")
    yield server
    server.server.stop()


def test_agentops_gets_the_agent_its_replies_and_queries_as_spans(
    agentops: AgentOps, tmp_path: Path, said: list[str]
) -> None:
    settings: Settings = load_settings([])
    given = Trackers(settings, tmp_path, said.append)
    given.rollouts(1, "train", [rollout_line(1, 1.0), rollout_line(1, None, record=None)])
    given.close()
    assert said == []
    assert agentops.tokens == ["Bearer jwt"]
    names = sorted(span.name for span in agentops.spans)
    assert names == ["chat", "query_database_by_sql", "query_database_by_sql", "sql_agent"]
    (agent,) = [span for span in agentops.spans if span.name == "sql_agent"]
    assert {span.parent_span_id for span in agentops.spans if span is not agent} == {agent.span_id}
    told = {a.key: a.value for a in agent.attributes}
    assert told["rollout.reward"].double_value == pytest.approx(1.1)
    assert re.match("Which form has Aspirin", told["agentops.entity.input"].string_value)


@pytest.mark.slow
def test_nothing_of_a_key_is_in_what_a_tracker_is_given(
    tmp_path: Path, said: list[str], offline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEACHER_API_KEY", "sk-very-secret")
    files = follow(tmp_path, said, "tracking.to=wandb,swanlab,tensorboard")
    assert said == []
    assert not [path for path in files.rglob("*") if path.is_file() and b"sk-very-secret" in path.read_bytes()]
