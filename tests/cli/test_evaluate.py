"""`sql-agent evaluate` measures any model, goes on where it stopped, and compares."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from sql_agent.__main__ import main as sql_agent
from sql_agent.cli.evaluate import main
from sql_agent.config.settings import load_settings
from sql_agent.errors import ConfigError, DataError, ResumeError, TrainingError
from sql_agent.evaluation.folder import EvaluationFolder
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Evidence, Question
from tests.support.library import TASK
from tests.support.processes import MAIN, finish, start, wait_for
from tests.support.question_server import QuestionServer, answering
from tests.support.report_page import data_of
from tests.support.small_database import make_database

FORMS = {1: "capsule", 2: "syrup", 4: "tablet", 5: "capsule", 6: "syrup", 8: "tablet"}
QUESTIONS = [
    Question(
        id=f"q{number}",
        question=f"Which form has Drug {number}?",
        answer=form,
        evidence=(Evidence(table="drugs_info", row_id=number, field="form", quote=form),),
        task_type="drug_field" if number < 5 else "keyword_search",
    )
    for number, form in FORMS.items()
]


def teach(server: QuestionServer, model: str, *numbers: int) -> None:
    """Let `model` answer the questions about these drugs."""
    for number in numbers:
        sql = f"SELECT form FROM drugs_info WHERE med_name = 'Drug {number}'"
        server.knows[model, f"Which form has Drug {number}?"] = (sql, FORMS[number])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[QuestionServer]:
    monkeypatch.setattr("sql_agent.agent.rollout._PAUSES_S", (0.01, 0.01, None))
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("TEACHER_MODEL", raising=False)
    with answering() as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "unused")
        teach(server, "good", *FORMS)
        teach(server, "half", 1, 2, 4)
        yield server


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    return [f"--questions={write(tmp_path / 'mine.jsonl', QUESTIONS)}", *overrides(tmp_path)]


def overrides(tmp_path: Path) -> list[str]:
    path = tmp_path / "medical.db"
    return [f"database.path={path if path.exists() else make_database(path)}", f"runs_dir={tmp_path / 'runs'}"]


def write(path: Path, questions: list[Question]) -> Path:
    path.write_text("".join(q.model_dump_json() + "\n" for q in questions), encoding="utf-8")
    return path


def evaluations(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "runs").glob("eval-*"))


def result(folder: Path, name: str = "evaluation") -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def test_a_model_is_measured_in_all_by_type_and_with_intervals(
    server: QuestionServer, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["half", *arguments]) == 0
    (folder,) = evaluations(tmp_path)
    (evaluation,) = result(folder)["evaluations"]
    measured = evaluation["sets"]["mine"]
    accurate = measured["all"]["figures"]["accurate"]
    assert (accurate["value"], accurate["count"]) == (0.5, 6)
    assert 0 <= accurate["low"] < 0.5 < accurate["high"] <= 1
    assert measured["by_task_type"]["drug_field"]["figures"]["accurate"]["value"] == 1.0
    assert measured["by_task_type"]["keyword_search"]["figures"]["accurate"]["value"] == 0.0
    assert measured["all"]["figures"]["agent/grounded"]["value"] == 0.5
    assert (evaluation["about"]["model"], evaluation["about"]["base_url"]) == ("half", server.url)
    output = capsys.readouterr().out
    assert max(map(cell_len, output.splitlines())) <= 80 + len(str(folder))  # only a path may be longer
    assert "50.0 % [" in output and "accurate: keyword search" in output
    assert "not medical advice" in output
    (shown,) = data_of(folder / "evaluation.html")["runs"]
    assert {question["question"] for question in shown["questions"]} == {q.question for q in QUESTIONS}
    assert "| accurate: in the rewarded form | 50.0 % [" in (folder / "evaluation.md").read_text(encoding="utf-8")


def test_without_question_files_the_test_split_and_the_benchmark_stand_side_by_side(
    server: QuestionServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SQL_AGENT_DATA__NATURAL_QUESTIONS", "12")
    runs = tmp_path / "runs"
    settings = load_settings([f"runs_dir={runs}", "task=tests.support.library:TASK"])
    TASK.prepare(settings, lambda _: None)
    write(runs / "library-test.jsonl", [Question(id="t", question="On which shelf is Emma?", answer="A1")])
    assert main(["m", f"runs_dir={runs}", "task=tests.support.library:TASK"]) == 0
    (folder,) = evaluations(tmp_path)
    (evaluation,) = result(folder)["evaluations"]
    assert evaluation["asked"] == {"test": 1, "natural": 2}
    heading = next(line for line in capsys.readouterr().out.splitlines() if line.rstrip().endswith("natural"))
    assert heading.split() == ["test", "natural"]


def test_samples_ask_each_question_several_times_at_temperature_1(
    server: QuestionServer, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["half", "--samples", "2", *arguments]) == 0
    (folder,) = evaluations(tmp_path)
    (evaluation,) = result(folder)["evaluations"]
    assert evaluation["asked"] == {"mine": 2 * len(QUESTIONS)}
    assert evaluation["about"]["settings"]["agent"]["val_temperature"] == 1.0
    output = " ".join(capsys.readouterr().out.split())
    assert "2 samples at temperature 1, " in output
    assert "pass^k: correct every time" in output


@pytest.mark.parametrize("given", ["0.3", "0"])
def test_samples_keep_a_temperature_that_the_environment_sets(
    given: str,
    server: QuestionServer,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SQL_AGENT_AGENT__VAL_TEMPERATURE", given)
    assert main(["half", "--samples", "2", *arguments]) == 0
    assert f"2 samples at temperature {given}, " in " ".join(capsys.readouterr().out.split())


def test_samples_keep_the_temperature_of_the_run(
    server: QuestionServer, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = f"data.train_file={write(tmp_path / 'train.jsonl', QUESTIONS[:1])}"
    run = RunLog.create(load_settings([train, "agent.val_temperature=0.7", *overrides(tmp_path)])).folder
    assert main(["half", f"--run={run}", "--samples=2", "--allow-overlap", *arguments]) == 0
    assert "2 samples at temperature 0.7, " in " ".join(capsys.readouterr().out.split())


def test_models_are_compared_and_the_questions_that_flipped_are_named(
    server: QuestionServer, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teach(server, "other", 2, 4, 5, 6, 8)
    assert main(["--compare", "half", "good", "other", *arguments]) == 0
    assert len(evaluations(tmp_path)) == 3
    (folder,) = (tmp_path / "runs").glob("compare-*")
    good, other = result(folder, "comparison")["comparisons"]
    assert (good["sets"]["mine"]["gained"], good["sets"]["mine"]["lost"]) == (3, 0)
    assert good["sets"]["mine"]["p"] == 0.25
    assert {flip["id"] for flip in good["sets"]["mine"]["flips"]} == {"q5", "q6", "q8"}
    assert (other["sets"]["mine"]["gained"], other["sets"]["mine"]["lost"]) == (3, 1)
    output = capsys.readouterr().out
    assert "became wrong, mine: Which form has Drug 1?" in output
    assert "McNemar's exact p" in output


def test_earlier_evaluations_are_compared_without_asking_again(
    server: QuestionServer, arguments: list[str], tmp_path: Path
) -> None:
    for model in ("half", "good"):
        assert main([model, *arguments]) == 0
    asked = server.asked.total()
    assert main(["--compare", *map(str, evaluations(tmp_path)), *overrides(tmp_path)]) == 0
    assert server.asked.total() == asked
    (folder,) = (tmp_path / "runs").glob("compare-*")
    assert result(folder, "comparison")["comparisons"][0]["sets"]["mine"]["gained"] == 3


def test_models_without_a_common_question_are_refused_before_a_question_is_asked(
    server: QuestionServer, arguments: list[str], tmp_path: Path
) -> None:
    assert main(["half", *arguments]) == 0
    before, asked = evaluations(tmp_path), server.asked.total()
    others = [question.model_copy(update={"answer": "powder"}) for question in QUESTIONS]
    arguments[0] = f"--questions={write(tmp_path / 'mine.jsonl', others)}"
    with pytest.raises(DataError, match="half and good have no question in common"):
        main(["--compare", str(before[0]), "good", *arguments])
    assert (evaluations(tmp_path), server.asked.total()) == (before, asked)


@pytest.mark.slow
def test_an_interrupted_evaluation_goes_on_and_asks_no_question_twice(
    server: QuestionServer, arguments: list[str], tmp_path: Path
) -> None:
    server.delay_s = 0.3
    process = start(["evaluate", "good", "--concurrency=1", *arguments], script=MAIN)
    records = (tmp_path / "runs").glob
    wait_for(lambda: bool(list(records("eval-*/records.jsonl"))) and server.asked.total() >= 2, process)
    process.send_signal(signal.SIGINT)
    output = finish(process, timeout=60)
    assert process.returncode == 130, output
    (folder,) = evaluations(tmp_path)
    assert f"sql-agent evaluate --resume {folder}" in " ".join(output.split())
    assert "Traceback" not in output
    lines = (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()
    done = {json.loads(line)["record"]["question"]["id"] for line in lines}
    assert 0 < len(done) < len(QUESTIONS)
    server.delay_s, before = 0.0, server.asked.copy()
    with pytest.raises(DataError, match="finish it first"):
        main(["--compare", str(folder), str(folder)])
    with EvaluationFolder.open(folder).lock(), pytest.raises(ConfigError, match="another process is asking"):
        main(["--resume", str(folder)])
    assert main(["--resume", str(folder)]) == 0
    again = server.asked - before
    assert {q.id for q in QUESTIONS if again[q.question]} == {q.id for q in QUESTIONS} - done
    assert result(folder)["evaluations"][0]["sets"]["mine"]["all"]["questions"] == len(QUESTIONS)


def test_what_failed_is_counted_and_asked_again_on_resuming(
    server: QuestionServer, arguments: list[str], tmp_path: Path
) -> None:
    server.failing[QUESTIONS[2].question] = 3
    with pytest.raises(TrainingError, match="1 of 6 questions could not be asked or graded") as caught:
        main(["good", *arguments])
    (folder,) = evaluations(tmp_path)
    assert caught.value.hint == f"ask them again: sql-agent evaluate --resume {folder}"
    all_of = result(folder)["evaluations"][0]["sets"]["mine"]["all"]
    assert (all_of["questions"], all_of["dropped"]) == (5, 1)
    assert main(["--resume", str(folder)]) == 0
    assert result(folder)["evaluations"][0]["sets"]["mine"]["all"]["figures"]["accurate"]["value"] == 1.0


def test_an_evaluation_goes_on_at_its_own_address_only(
    server: QuestionServer, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.failing[QUESTIONS[2].question] = 3
    with pytest.raises(TrainingError):
        main(["good", *arguments])
    monkeypatch.setenv("OPENAI_API_BASE", "http://elsewhere/v1")
    with pytest.raises(ResumeError, match="OPENAI_API_BASE is now http://elsewhere/v1"):
        main(["--resume", str(evaluations(tmp_path)[0])])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was trained on one of the questions, and on the row of another in other words."""
    train = [
        QUESTIONS[0].model_copy(update={"id": "t1"}),
        QUESTIONS[1].model_copy(update={"id": "t2", "question": "?"}),
    ]
    settings = load_settings(
        [f"data.train_file={write(tmp_path / 'train.jsonl', train)}", "run_name=night", *overrides(tmp_path)]
    )
    return RunLog.create(settings).folder


def test_questions_and_entities_of_the_training_are_refused(
    server: QuestionServer, arguments: list[str], run: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        main(["good", f"--run={run}", *arguments])
    assert "1 are training questions, such as 'Which form has Drug 1?'" in caught.value.message
    assert "1 are about rows of training questions, such as q2 about drugs_info 2" in caught.value.message
    assert caught.value.hint is not None and "--allow-overlap" in caught.value.hint
    assert not evaluations(tmp_path) and not server.asked, "it is refused before anything is asked"


@pytest.mark.parametrize(("flag", "asked"), [("--allow-overlap", 6), ("--drop-overlap", 4)])
def test_an_overlap_is_asked_or_left_out_when_told_to(
    server: QuestionServer,
    arguments: list[str],
    run: Path,
    tmp_path: Path,
    flag: str,
    asked: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["good", "--run=night", flag, *arguments]) == 0
    assert result(evaluations(tmp_path)[0])["evaluations"][0]["asked"] == {"mine": asked}
    assert "was trained on some" in " ".join(capsys.readouterr().out.split())


def test_the_sample_of_n_is_spread_over_the_types(server: QuestionServer, arguments: list[str], tmp_path: Path) -> None:
    assert main(["good", "-n", "2", *arguments]) == 0
    measured = result(evaluations(tmp_path)[0])["evaluations"][0]["sets"]["mine"]
    assert {name: group["questions"] for name, group in measured["by_task_type"].items()} == {
        "drug_field": 1,
        "keyword_search": 1,
    }


@pytest.mark.slow
def test_a_checkpoint_is_served_here_and_belongs_to_its_run(
    tmp_path: Path, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch, run: Path
) -> None:
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    monkeypatch.chdir(tmp_path)
    checkpoint = run / "checkpoints" / "step-000003"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text("{}")
    (checkpoint / "model").symlink_to(tiny_model_folder)
    small = [f"--questions={write(tmp_path / 'two.jsonl', QUESTIONS[2:4])}", "agent.max_tokens=8",
             "local.max_context=8192", *overrides(tmp_path)]  # fmt: skip
    for arguments in (["--run=night"], [str(checkpoint)], ["night"]):
        assert main([*arguments, *small]) == 0
        about = result(evaluations(tmp_path)[-1])["evaluations"][0]["about"]
        assert about["model"] == "night/step-000003"
        assert Path(about["run"]).samefile(run)


@pytest.mark.slow
def test_a_checkpoint_of_verl_is_exported_once(
    tmp_path: Path, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch, run: Path
) -> None:
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    exported = []

    def export(checkpoint: Path, out: Path) -> None:
        exported.append(checkpoint.name)
        out.symlink_to(tiny_model_folder)

    monkeypatch.setattr("sql_agent.cli.model_choice.export_checkpoint", export)
    for step in (10, 20):
        (run / "checkpoints" / f"global_step_{step}" / "actor").mkdir(parents=True)
    small = [f"--questions={write(tmp_path / 'two.jsonl', QUESTIONS[2:4])}", "agent.max_tokens=8",
             "local.max_context=8192", *overrides(tmp_path)]  # fmt: skip
    for model in (["--run=night"], ["night"], [str(run / "checkpoints" / "global_step_10")]):
        assert main([*model, *small]) == 0
    assert exported == ["global_step_20", "global_step_10"]
    names = [result(folder)["evaluations"][0]["about"]["model"] for folder in evaluations(tmp_path)]
    assert sorted(names) == ["night/global_step_10", "night/global_step_20", "night/global_step_20"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mapping=x.toml"], "--mapping needs --questions"),
        (["--compare", "a"], "--compare needs two MODELs"),
        (["--resume=x", "a"], "except --concurrency and --predictions"),
        (["--drop-overlap", "--allow-overlap"], "not allowed with"),
    ],
)
def test_a_command_line_that_contradicts_itself_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--run=none"], "there is no run in none"),
        (["--resume=none"], "there is no evaluation in none"),
        (["m", "--questions=none.jsonl"], "cannot read none.jsonl"),
    ],
)
def test_a_wrong_path_is_named_with_exit_code_2(
    server: QuestionServer, arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [] if "--resume=none" in arguments else overrides(tmp_path)
    assert sql_agent(["evaluate", *arguments, *more]) == 2
    errors = capsys.readouterr().err
    assert said in errors and "next:" in errors


def test_a_misspelt_run_is_refused_at_once_and_the_nearest_is_named(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    checkpoint = run / "checkpoints" / "step-000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text("{}")
    assert sql_agent(["evaluate", "nigth", *overrides(tmp_path)]) == 2
    errors = " ".join(capsys.readouterr().err.split())
    assert "there is no run, checkpoint or folder called 'nigth'" in errors
    assert f"in {run.parent} there is night" in errors
