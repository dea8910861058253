"""A model keeps or drops questions by a rubric; what it decided is kept through an interrupt and never paid twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sql_agent.cli.command import exits_cleanly
from sql_agent.cli.data import main
from sql_agent.questions.question_files import load_questions
from tests.support.judge_server import Server, serving_as_teacher
from tests.support.processes import ROOT, run_command
from tests.support.small_run import write_lines


@pytest.fixture
def teacher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("SQL_AGENT_JUDGE__CONCURRENCY", "1")
    with serving_as_teacher(monkeypatch) as server:
        server.plays = decide
        yield server


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    asked = [(f"q{n}", f"Which form has Drug {n}?" if n % 2 else f"Which form? {n}") for n in range(6)]
    write_lines(path, [{"id": number, "question": text, "answer": "tablet"} for number, text in asked])
    return path


def decide(prompt: str) -> str:
    """Keep a question that names a drug."""
    keep = "Drug" in prompt
    return json.dumps({"reason": "clear" if keep else "which drug is not said", "keep": keep})


def run(*arguments: object) -> int:
    return exits_cleanly(main, ["filter", *map(str, arguments)])


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_questions_are_kept_or_dropped_with_a_reason_for_each(
    teacher: Server, source: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = source.with_name(f"kept.{ending}")
    assert run(source, "--out", out) == 0
    assert [question.id for question in load_questions(out)] == ["q1", "q3", "q5"]
    log = out.with_name(f"{out.name}.decisions.jsonl")
    decisions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert {entry["id"]: entry["keep"] for entry in decisions} == {f"q{n}": n % 2 == 1 for n in range(6)}
    output = capsys.readouterr().out
    assert "3 of 6 questions are kept" in output and "dropped q0: which drug is not said" in output
    assert "Cost: 6 requests" in output and "not medical advice" in output
    assert "no opinion, forecast or advice" in teacher.prompt, "the built-in rubric"


def test_after_an_interrupt_the_same_command_asks_only_what_is_left(
    teacher: Server, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = source.with_name("kept.jsonl")
    teacher.plays = lambda prompt: 401 if len(teacher.requests) > 2 else decide(prompt)
    assert run(source, "--out", out) == 2
    assert not out.exists(), "half a file would pass for a whole one"
    log = out.with_name("kept.jsonl.decisions.jsonl")
    with log.open("a", encoding="utf-8") as sink:
        sink.write('{"id": "q2", "dig')  # as a process leaves it that was killed
    teacher.plays, before = decide, len(teacher.requests)
    capsys.readouterr()
    assert run(source, "--out", out) == 0
    assert len(teacher.requests) - before == 4
    assert "2 of 6 questions are in" in capsys.readouterr().out
    assert [question.id for question in load_questions(out)] == ["q1", "q3", "q5"]


def test_a_rubric_of_one_s_own_is_shown_and_decisions_by_another_are_not_taken(
    teacher: Server, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, rubric = source.with_name("kept.jsonl"), source.with_name("rubric.txt")
    rubric.write_text("- It is about paracetamol.\n", encoding="utf-8")
    assert run(source, "--out", out, "--rubric", rubric) == 0
    assert "- It is about paracetamol." in teacher.prompt
    assert run(source, "--out", out) == 2
    assert "belongs to other questions, prompts" in capsys.readouterr().err


def test_a_question_that_the_model_refuses_is_left_out_and_named(
    teacher: Server, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = {"error": {"message": "rejected by our safety system", "code": "content_policy_violation"}}
    teacher.plays = lambda prompt: refused if "Drug 3" in prompt else decide(prompt)
    out = source.with_name("kept.jsonl")
    assert run(source, "--out", out) == 0
    assert [question.id for question in load_questions(out)] == ["q1", "q5"]
    assert "1 questions are left out because the teacher failed" in capsys.readouterr().out


def test_wrong_places_and_files_are_refused_before_anything_is_asked(
    teacher: Server, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ((source, "--out", source), (source, "--out", "kept.csv"),
                      (source, "--out", source.with_name("k.jsonl"), "--rubric", "none.txt")):  # fmt: skip
        assert run(*arguments) == 2
        assert "next:" in capsys.readouterr().err
    assert teacher.requests == []


@pytest.mark.slow
def test_the_script_of_utils_is_the_same_command() -> None:
    done = run_command(sys.executable, ROOT / "utils" / "filter_questions.py", "--help")
    assert done.returncode == 0
    assert "sql-agent data filter mine.parquet --out kept.parquet" in done.stdout
