"""The command evaluates a judge, prints tables and writes numbers and gradings."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from sql_agent.cli.command import exits_cleanly
from sql_agent.cli.judge import main
from sql_agent.judge_eval.answers import LabelledCase, load_labelled
from sql_agent.tasks.medical.medical_task import make_question_files
from sql_agent.tasks.medical.sample import build_database, load_facts
from tests.support.judge_server import serving
from tests.support.processes import free_port


def test_labels_give_tables_numbers_and_gradings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--labels", "labels", "--out", str(tmp_path / "night")]) == 0
    printed = capsys.readouterr().out
    assert "attack on the judge" in printed and "comparison" in printed and "Spearman" in printed
    result = json.loads((tmp_path / "night" / "evaluation.json").read_text(encoding="utf-8"))
    assert (result["judge"], result["files"], result["failed"]) == ("facts", ["labels", "attacks"], 0)
    labels = {group["kind"]: group for group in result["groups"] if group["set"] == "labels"}
    assert labels["all"]["graded"] == len(load_labelled("labels")) >= 200
    assert set(labels) >= {"comparison", "unanswerable", "aggregate", "en", "zh"}
    for kind in labels.keys() - {"en", "zh"}:
        for values in labels[kind]["measures"].values():
            assert values["low"] <= values["value"] <= values["high"]
    attacks = [group for group in result["groups"] if group["set"] == "attacks"]
    assert sum(group["graded"] for group in attacks) == len(load_labelled("attacks"))
    assert [group["kind"] for group in attacks if group["above_limit"]] == []
    lines = (tmp_path / "night" / "gradings.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == result["answers"]
    assert {"set", "question_id", "task_type", "lang", "kind", "answer", "due", "score", "criteria", "reason"} <= set(
        rows[0]
    )
    assert exits_cleanly(main, ["evaluate", "--labels", "labels", "--out", str(tmp_path / "night")]) == 2, (
        "results are not overwritten"
    )


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The arguments that name the English sample and its test questions."""
    path = tmp_path_factory.mktemp("sample") / "sample_en.db"
    build_database(load_facts(), "en", path)
    make_question_files(path, path.parent / "questions", "en", per_type=8)
    return ["--questions", str(path.parent / "questions" / "test.parquet"), "--db", str(path)]


@pytest.mark.slow
def test_without_labels_the_judge_is_measured_on_generated_answers(
    sample: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", *sample, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    for shown in ("negated", "always refuse", "full width", "Numbers and gradings: "):
        assert shown in printed
    assert "Cost" not in printed
    result = json.loads((tmp_path / "out" / "evaluation.json").read_text(encoding="utf-8"))
    assert (result["judge"], result["files"], result["failed"]) == ("facts", ["questions/test.parquet"], 0)
    negated = next(group for group in result["groups"] if group["kind"] == "negated")
    assert (negated["due"], negated["mean"], negated["half_or_more"]) == (0, 0, 0)
    lines = (tmp_path / "out" / "gradings.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == result["answers"]
    assert {"set", "kind", "question_id", "answer", "due", "score", "reason"} <= set(json.loads(lines[0]))
    assert "For research on retrieval" in printed


def test_a_judge_behind_a_network_gets_a_few_questions_and_its_cost_is_said(
    sample: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        server.default = {"score": 0.9}
        monkeypatch.setenv("REWARD_MODEL_URL", server.url)
        arguments = [*sample, "-n", "2", "--out", str(tmp_path / "out"), "judge.name=reward-model"]
        assert main(["evaluate", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "more answers graded wrong: see gradings.jsonl" in printed
    result = json.loads((tmp_path / "out" / "evaluation.json").read_text(encoding="utf-8"))
    assert result["questions"] == 2
    assert result["usage"]["requests"] >= len(server.requests) > 0  # some found the server busy and were sent again
    assert f"Cost: {result['usage']['requests']} requests" in printed
    assert "always refuse" in printed, "the sentence is that of the whole file"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--labels", "labels", "-n", "5"], "contain their questions"),
        (["--db", "x.db"], "--db without --questions"),
        (["--questions", "a.parquet", "--questions", "b.parquet", "--db", "x.db"], "2 question files and 1 databases"),
        (["--questions", "missing.parquet", "--db", "x.db"], "missing.parquet"),
        (["-n", "0"], "whole number from 1"),
        (["-n", "5", "--nothing", "judge.name=facts"], "unrecognized arguments: --nothing"),
    ],
)
def test_what_does_not_fit_together_is_said_with_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(SystemExit):
        assert exits_cleanly(main, ["evaluate", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_questions_about_another_database_are_named(
    sample: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.jsonl"
    lines = ['{"id": "1", "question": "What?", "answer": "x", "sql": "SELECT nothing FROM drugs_info"}']
    path.write_text(lines[0], encoding="utf-8")
    assert exits_cleanly(main, ["evaluate", "--questions", str(path), *sample[2:]]) == 2
    assert "the SQL of question '1' fails" in capsys.readouterr().err
    path.write_text('{"id": "1", "question": "What?", "answer": "x"}', encoding="utf-8")
    assert exits_cleanly(main, ["evaluate", "--questions", str(path), *sample[2:]]) == 2
    assert "question '1' has no gold SQL" in capsys.readouterr().err


def test_prose_under_other_names_is_measured_by_what_its_gold_sql_returns(sample: list[str], tmp_path: Path) -> None:
    row = {
        "key": 1,
        "text": "Which category does Budesonide have?",
        "reference": "Budesonide is a **glucocorticoid; inhaled corticosteroid** in this database.",
        "gold": "SELECT cate_name FROM drugs_info WHERE med_name = 'Budesonide'",
    }
    questions, mapping = tmp_path / "mine.jsonl", tmp_path / "mine.toml"
    questions.write_text(json.dumps(row), encoding="utf-8")
    mapping.write_text('id = "key"\nquestion = "text"\nanswer = "reference"\nsql = "gold"\n', encoding="utf-8")
    arguments = ["--questions", str(questions), *sample[2:], "--mapping", str(mapping), "--out", str(tmp_path / "out")]
    assert main(["evaluate", *arguments]) == 0
    groups = json.loads((tmp_path / "out" / "evaluation.json").read_text(encoding="utf-8"))["groups"]
    means = {group["kind"]: group["mean"] for group in groups}
    assert (means["as_it_is"], means["another_order"], means["negated"], means["sentence_appended"]) == (1, 1, 0, 0)


def labels_file(tmp_path: Path, cases: list[LabelledCase]) -> str:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(f"{case.model_dump_json()}\n" for case in cases), encoding="utf-8")
    return str(path)


def without_facts(case: LabelledCase) -> LabelledCase:
    """The same, but the judge `facts` can make nothing of it."""
    question = case.question.model_copy(update={"answer": "; ;", "task_type": "drug_field"})
    return case.model_copy(update={"question": question})


def test_too_many_failures_end_the_command_with_1_and_leave_the_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = [case for case in load_labelled("labels") if case.kind == "exact"][:20]
    path = labels_file(tmp_path, [*good, *map(without_facts, good)])
    assert exits_cleanly(main, ["evaluate", "--labels", path, f"runs_dir={tmp_path / 'runs'}"]) == 1
    told = capsys.readouterr()
    failed = f"20 of {40 + len(load_labelled('attacks'))} gradings failed"
    assert failed in told.err
    assert "judge.max_failed_share=0.05" in told.err
    assert "has no reference facts" in told.out
    (folder,) = (tmp_path / "runs").glob("judge-facts-*")
    result = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    together = result["groups"][0]
    assert (together["set"], together["kind"], together["graded"], together["failed"]) == ("labels", "all", 20, 20)
    assert result["files"] == ["mine.jsonl", "attacks"]
    patient = ["evaluate", "--labels", path, "--out", str(tmp_path / "b"), "judge.max_failed_share=0.5"]
    assert exits_cleanly(main, patient) == 0
    assert failed in capsys.readouterr().out


def test_a_judge_whose_endpoint_is_down_ends_the_command_before_all_answers_are_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEACHER_MODEL", "m")
    monkeypatch.setenv("TEACHER_BASE_URL", f"http://127.0.0.1:{free_port()}/v1")
    monkeypatch.setattr("sql_agent.reward.judges.endpoint.ATTEMPTS", 1)
    arguments = ["evaluate", "--labels", "labels", "judge.name=llm", f"runs_dir={tmp_path / 'runs'}"]
    assert exits_cleanly(main, arguments) == 2
    assert "gradings in a row failed, the last one because: the judge m failed" in capsys.readouterr().err


def test_where_nothing_can_be_measured_a_dash_and_the_reason_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = [case.model_copy(update={"answer": "", "calls": ()}) for case in load_labelled("labels")]
    assert main(["evaluate", "--labels", labels_file(tmp_path, silent), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "– in all: all scores are 0.00" in printed
    assert " nan " not in printed
    text = (tmp_path / "out" / "evaluation.json").read_text(encoding="utf-8")
    spearman_in_all = json.loads(text)["groups"][0]["measures"]["spearman"]
    assert "NaN" not in text
    assert spearman_in_all == {"value": None, "low": None, "high": None, "undefined": "all scores are 0.00"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"answer": "x"}', "line 1: question"),
        ("not json", "line 1"),
        ("", "has no labelled"),
        (b"\xff\xfe", "is not UTF-8"),
        ('{"question": {"id": "1", "question": "a\u2028b", "answer": "c"}}', "line 1: answer"),
    ],
)
def test_a_bad_file_is_named_with_its_line(
    line: str | bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_bytes(line if isinstance(line, bytes) else line.encode())
    assert exits_cleanly(main, ["evaluate", "--labels", str(path)]) == 2
    assert message in capsys.readouterr().err
