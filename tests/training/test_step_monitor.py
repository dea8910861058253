"""A run stops as soon as it is not worth going on, with the cause, and every rollout is in its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.config.settings import load_settings
from sql_agent.errors import NoTripletsError
from sql_agent.rollouts.scheduler import Mode, RolloutRequest
from sql_agent.rollouts.trajectory import FinishedRollout, Turn, merge_turns
from sql_agent.runs.console import Ui
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Drop, DropCause, Outcome, Question, RewardParts, RolloutRecord
from sql_agent.training.step_monitor import StepMonitor, update_metrics
from tests.support.processes import lines

QUESTION = Question(id="q", question="In which form does Drug 1 come?", answer="capsule")
TURN = Turn((1,), (2,))
VAL = {
    "template": [QUESTION, *(QUESTION.model_copy(update={"id": f"t{i}"}) for i in range(15))],
    "natural": [QUESTION.model_copy(update={"id": f"n{i}"}) for i in range(4)],
}


def monitor_of(folder: Path, *overrides: str) -> StepMonitor:
    """A monitor of a run with 4 questions of 4 rollouts a step, unless `overrides` say otherwise."""
    settings = load_settings(["train.questions_per_step=4", "train.group_size=4", *overrides])
    return StepMonitor(settings, RunLog(folder), Ui(), val=VAL)


def lose(monitor: StepMonitor, count: int, cause: DropCause, *, mode: Mode = "train", turns: int = 1) -> None:
    for index in range(count):
        request = RolloutRequest(QUESTION, mode, 1, f"g{index}")
        monitor.enqueued(request)
        drop = Drop(cause=cause, detail="it broke")
        monitor.finished(request, FinishedRollout(f"r{index}", request.group, None, None, (TURN,) * turns, (), drop))


def test_a_few_lost_rollouts_are_accepted_and_more_stop_the_run_with_the_reason(tmp_path: Path) -> None:
    monitor = monitor_of(tmp_path, "runner.max_failed_share=0.2")
    lose(monitor, 3, DropCause.ATTEMPT)
    assert monitor.failure is None
    lose(monitor, 1, DropCause.ATTEMPT)
    assert "4 rollouts were lost" in str(monitor.failure)
    assert "4 × the attempt did not succeed: it broke" in str(monitor.failure)
    assert len(lines(tmp_path / "rollouts.jsonl")) == 4, "they can be looked at"


def test_a_template_that_splits_rollouts_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monitor = monitor_of(tmp_path)
    record = RolloutRecord(question=QUESTION, answer="capsule", outcome=Outcome.ANSWERED)
    for step in (1, 2):
        request = RolloutRequest(QUESTION, "train", step, "g")
        monitor.enqueued(request)
        turns = (Turn((1,), (2,)), Turn((3,), (4,)))
        monitor.finished(request, FinishedRollout("r", "g", record, 0.0, turns, tuple(merge_turns(turns)), None))
        monitor.close_step(step, update_metrics(1.0, 1.0, {"grad_norm": 1.0}))
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("1 of 1 rollouts were split into several sequences, because the chat template rewrites") == 1


def test_a_step_without_any_triplet_stops_the_run_however_many_losses_are_accepted(tmp_path: Path) -> None:
    monitor = monitor_of(tmp_path, "runner.max_failed_share=1")
    lose(monitor, 15, DropCause.SPANS, turns=0)
    assert monitor.failure is None
    lose(monitor, 1, DropCause.SPANS, turns=0)
    assert isinstance(monitor.failure, NoTripletsError)
    assert "zero triplets from 16 rollouts" in str(monitor.failure)


def test_one_failed_grading_is_always_accepted_and_more_than_the_share_stop_the_run(tmp_path: Path) -> None:
    monitor = monitor_of(tmp_path, "judge.max_failed_share=0.05")
    lose(monitor, 1, DropCause.JUDGE)
    assert monitor.failure is None
    lose(monitor, 1, DropCause.JUDGE)
    assert "the judge failed on 2 of 16 rollouts" in str(monitor.failure)


@pytest.mark.parametrize(("lost", "stops"), [(4, False), (5, True)])
def test_a_failed_ranking_loses_a_whole_group_and_one_group_is_accepted(tmp_path: Path, lost: int, stops: bool) -> None:
    monitor = monitor_of(tmp_path, "judge.name=ranking", "judge.max_failed_share=0.05", "runner.max_failed_share=1")
    lose(monitor, lost, DropCause.JUDGE)
    assert (monitor.failure is not None) is stops


def test_the_accepted_share_of_a_validation_is_that_of_its_questions(tmp_path: Path) -> None:
    monitor = monitor_of(tmp_path, "runner.max_failed_share=0.2")
    lose(monitor, 4, DropCause.MODEL_SERVER, mode="val")
    assert monitor.failure is None
    lose(monitor, 1, DropCause.MODEL_SERVER, mode="val")
    assert "step 1 (val)" in str(monitor.failure)


def test_the_sets_of_a_validation_are_measured_by_themselves_and_a_retry_counts_in_its_set(tmp_path: Path) -> None:
    val = {
        "template": [QUESTION.model_copy(update={"id": f"t{i}", "task_type": "aggregate"}) for i in range(2)],
        "natural": [QUESTION.model_copy(update={"id": "n", "task_type": "two_hops", "database": "sample_en"})],
    }
    monitor = StepMonitor(load_settings(), RunLog(tmp_path), Ui(), val=val)
    for index, (question, score, lost) in enumerate(
        [(val["template"][0], 1.0, False), (val["natural"][0], 0.0, True), (val["template"][1], 0.0, False),
         (val["natural"][0], 1.0, False)]
    ):  # fmt: skip
        request = RolloutRequest(question, "val", 4, question.id)
        reward = RewardParts(rule=0.1, judge=score, judge_name="facts")
        record = RolloutRecord(question=question, answer="x", outcome=Outcome.ANSWERED, reward=reward)
        drop = Drop(cause=DropCause.SPANS) if lost else None
        monitor.enqueued(request)
        monitor.finished(request, FinishedRollout(f"r{index}", request.group, record, reward.total, (), (), drop))
    monitor.close_validation(4)
    (measured,) = lines(tmp_path / "validation.jsonl")
    assert measured["step"] == 4
    assert (measured["val/template/questions"], measured["val/natural/questions"]) == (2, 1)
    assert (measured["val/template/accurate"], measured["val/natural/accurate"]) == (0.5, 1.0)
    assert measured["val/template/accurate/aggregate"] == 0.5 and measured["val/natural/accurate/two_hops"] == 1.0
    assert (measured["val/template/rollouts/failed"], measured["val/natural/rollouts/failed"]) == (0, 1)
    assert measured["val/template/refused_answerable"] == 0.0
    assert [r["val_set"] for r in lines(tmp_path / "rollouts.jsonl")] == ["template"] * 2 + ["natural"] * 2


def test_groups_that_still_run_when_a_step_ends_are_written_with_a_later_one(tmp_path: Path) -> None:
    """This happens in the asynchronous trainer modes, where groups of the next step run during an update."""
    monitor = monitor_of(tmp_path)
    requests = [RolloutRequest(QUESTION, "train", 1, group) for group in ("early", "early", "late", "late")]
    ended = [FinishedRollout(f"r{i}", o.group, None, float(i % 2), (), (), None) for i, o in enumerate(requests)]
    for request in requests:
        monitor.enqueued(request)
    for index in (0, 1, 2):
        monitor.finished(requests[index], ended[index])
    update = update_metrics(rollout_s=1.0, update_s=1.0, figures={"grad_norm": 1.0})
    monitor.close_step(1, update)
    monitor.finished(requests[3], ended[3])
    monitor.close_step(2, update)
    assert [(r["step"], r["rollout_id"]) for r in lines(tmp_path / "rollouts.jsonl")] == [
        (1, "r0"), (1, "r1"), (2, "r2"), (2, "r3"),
    ]  # fmt: skip
    first, second = lines(tmp_path / "metrics.jsonl")
    assert first["rollouts/enqueued"] == second["rollouts/enqueued"] == 2
    assert first["rollouts/failed"] == second["rollouts/failed"] == 0


def test_a_policy_that_always_answers_alike_ends_the_search_for_groups_that_differ(tmp_path: Path) -> None:
    monitor = monitor_of(tmp_path, "verl.dynamic_sampling=3", "train.questions_per_step=1", "train.group_size=2")
    for index in range(6):
        request = RolloutRequest(QUESTION, "train", 1, f"g{index // 2}")
        monitor.enqueued(request)
        monitor.finished(request, FinishedRollout(f"r{index}", request.group, None, 0.1, (), (), None))
    assert monitor.failure is None, "three times a step's rollouts may be run"
    monitor.enqueued(RolloutRequest(QUESTION, "train", 1, "g3"))
    assert "after 6 rollouts, fewer than 1 groups have different rewards (0.0% of the groups)" in str(monitor.failure)
    assert len(lines(tmp_path / "rollouts.jsonl")) == 6, "they can be looked at"


def test_the_first_loss_of_each_cause_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monitor = monitor_of(tmp_path, "runner.max_failed_share=1")
    lose(monitor, 2, DropCause.DATABASE)
    lose(monitor, 1, DropCause.MODEL_SERVER)
    lose(monitor, 1, DropCause.PROCESS)
    said = [line for line in capsys.readouterr().out.splitlines() if "is run again" in line]
    assert [line.split(": ")[1] for line in said] == ["the database could not be queried", "the model's server failed"]
