"""A resumed run is the run that it was, in the hands of one process."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from sql_agent.config.settings import load_settings, read_sources
from sql_agent.errors import ConfigError, ResumeError
from sql_agent.runs.resume import check_inputs, question_digest, settings_to_resume
from sql_agent.runs.run_folder import recorded_session
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Question


def run_with(folder: Path, *overrides: str, saved: int | None = None) -> RunLog:
    log = RunLog.create(load_settings([f"runs_dir={folder}", "run_name=night", *overrides]))
    if saved is not None:
        state = log.folder / "checkpoints" / f"step-{saved:06d}" / "state.json"
        state.parent.mkdir(parents=True)
        state.write_text("{}")
    return log


def resumed(folder: Path, *named: str) -> list[object]:
    """Return what the settings of a resumed run are, those that the tests look at."""
    settings = settings_to_resume(read_sources([f"runs_dir={folder}", "run_name=night", *named]))
    return [settings.train.lr, settings.train.steps, settings.runner.n_runners]


def test_a_run_goes_on_with_its_own_settings_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_with(tmp_path, "train.lr=3e-5", "train.steps=50", "runner.n_runners=2", saved=10)
    monkeypatch.setenv("SQL_AGENT_TRAIN__LR", "1.0")
    assert resumed(tmp_path) == [3e-5, 50, 2]
    assert resumed(tmp_path, "train.steps=60", "runner.n_runners=1", "train.lr=3e-5") == [3e-5, 60, 1]
    with pytest.raises(ResumeError, match=r"train\.lr: 3e-05 → 0.1"):
        resumed(tmp_path, "train.lr=0.1")


def test_a_run_that_ran_out_of_memory_goes_on_with_what_needs_less(tmp_path: Path) -> None:
    run_with(tmp_path, "verl.gpu_memory_gb=80", saved=10)
    less = ["verl.gpu_memory_gb=40", "train.micro_batch=2", "runner.concurrency=4"]
    settings = settings_to_resume(read_sources([f"runs_dir={tmp_path}", "run_name=night", *less]))
    assert (settings.verl.gpu_memory_gb, settings.train.micro_batch, settings.runner.concurrency) == (40, 2, 4)


def test_what_cannot_be_resumed_says_what_to_do_instead(tmp_path: Path) -> None:
    with pytest.raises(ResumeError, match="no run to resume"):
        resumed(tmp_path)
    log = run_with(tmp_path)
    with pytest.raises(ResumeError, match="before its first save") as unsaved:
        resumed(tmp_path)
    assert "without --resume" in str(unsaved.value.hint)
    del log  # its process has ended
    log = run_with(tmp_path, "train.steps=7", saved=7)
    with recorded_session(log.folder):
        pass
    with pytest.raises(ResumeError, match="is finished: all its 7 steps"):
        resumed(tmp_path)
    assert resumed(tmp_path, "train.steps=9")[1] == 9


CUT = '{"step": 4, "rew'


@pytest.mark.parametrize(
    ("metrics", "rollouts", "said"),
    [
        ([1, 2, 3], [1, 2, 3], "Resuming after step 3 of 9"),
        (
            [1, 2, 3, 4],
            [1, 2, 3, 4, 4, 5],
            "Resuming after step 3 of 9. Later steps were not saved in a checkpoint and are repeated",
        ),
        (
            [1, 2, 3, CUT],
            [1, 2, 3, 4],
            "Resuming after step 3 of 9. The last line of metrics.jsonl was cut off and is removed. Later steps were "
            "not saved in a checkpoint and are repeated",
        ),
        (
            [1, 2, CUT],
            [1, 2, 3],
            "Resuming after step 3 of 9. The last line of metrics.jsonl was cut off and is removed. The checkpoint "
            "has this step, but the run ended before the step was written to metrics.jsonl",
        ),
        (
            [1, 2],
            [1, 2],
            "Resuming after step 3 of 9. The checkpoint has this step, but the run ended before the step was "
            "written to metrics.jsonl and rollouts.jsonl",
        ),
    ],
)
@pytest.mark.parametrize("backend", ["local", "verl"])
def test_a_resumed_run_says_after_which_step_it_goes_on_and_what_was_lost(
    tmp_path: Path, backend: str, metrics: list[int | str], rollouts: list[int], said: str
) -> None:
    log = run_with(tmp_path, "train.steps=9", saved=3 if backend == "local" else None)
    if backend == "verl":
        (log.folder / "checkpoints" / "global_step_3").mkdir(parents=True)
        (log.folder / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("3")
    else:
        for name, content in {"optimizer.pt": None, "model/config.json": b"{}", "model/x.safetensors": None}.items():
            path = log.folder / "checkpoints" / "step-000003" / name
            path.parent.mkdir(exist_ok=True)
            write_whole(path) if content is None else path.write_bytes(content)
    for name, steps in (("metrics.jsonl", metrics), ("rollouts.jsonl", rollouts)):
        lines = [step if isinstance(step, str) else json.dumps({"step": step}) + "\n" for step in steps]
        (log.folder / name).write_text("".join(lines))
    folder = log.folder
    del log  # its process has ended
    resumed = RunLog.resume(load_settings([f"runs_dir={tmp_path}", "run_name=night", "train.steps=9"]))
    assert resumed.notice == said
    resumed.metrics(4, {"reward/mean": 0.5})
    for name, steps in (("metrics.jsonl", metrics), ("rollouts.jsonl", rollouts)):
        left = [json.loads(line)["step"] for line in (folder / name).read_text().splitlines()]
        kept = [step for step in steps if isinstance(step, int) and step <= 3]
        assert left == kept + ([4] if name == "metrics.jsonl" else [])


def write_whole(path: Path) -> None:
    """Write an empty file of weights or of an optimizer, whole."""
    if path.suffix == ".pt":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", b"")
    else:
        path.write_bytes((2).to_bytes(8, "little") + b"{}")


def test_a_run_that_saved_nothing_gives_its_name_away_and_keeps_its_files(tmp_path: Path) -> None:
    log = run_with(tmp_path)
    log.metrics(1, {"reward/mean": 0.5})
    del log
    again = run_with(tmp_path, saved=1)
    assert not (again.folder / "metrics.jsonl").exists()
    assert (Path(again.notice.partition(" are now in ")[2]) / "metrics.jsonl").exists()
    del again
    with pytest.raises(ConfigError, match="already holds a run"):
        run_with(tmp_path)


def test_two_processes_cannot_write_into_one_run(tmp_path: Path) -> None:
    first = run_with(tmp_path, saved=1)
    settings = load_settings([f"runs_dir={tmp_path}", "run_name=night"])
    for take in (RunLog.create, RunLog.resume):
        with pytest.raises(ConfigError, match="another process is training the run"):
            take(settings)
    assert first.folder == tmp_path / "night"


def test_a_database_or_questions_that_changed_since_the_run_began_are_named(tmp_path: Path) -> None:
    folder = run_with(tmp_path, saved=10).folder
    began = {"the database": "d1", "the training questions": question_digest([question("oral")])}
    check_inputs(folder, began)  # an older version recorded nothing
    for _ in range(2):
        with recorded_session(folder, "medical.db", began):
            check_inputs(folder, began)
    for changed, named in (
        ({"the database": "d2"}, "the database"),
        ({"the training questions": question_digest([question("tablet")])}, "the training questions"),
    ):
        with pytest.raises(ResumeError) as refused:
            check_inputs(folder, began | changed)
        assert refused.value.message == f"{named} changed after {folder} began"
        assert "run_name" in str(refused.value.hint) and "step-000010/model" in str(refused.value.hint)
    check_inputs(folder, {"the training questions": began["the training questions"]})  # now on a server


def question(answer: str) -> Question:
    return Question(id="q1", question="Which form?", answer=answer)
