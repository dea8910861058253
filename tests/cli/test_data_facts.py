"""References of prose become facts that stand to the letter in what the question's own sources say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sql_agent.cli.command import exits_cleanly
from sql_agent.cli.data import main
from sql_agent.questions.question_files import load_questions
from tests.support.judge_server import Server, serving_as_teacher
from tests.support.small_database import make_database
from tests.support.users_questions import FACTS, PROSE, SEARCH, written


@pytest.fixture
def teacher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving_as_teacher(monkeypatch) as server:
        yield server


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return make_database(tmp_path / "medical.db")


def facts(*given: str) -> str:
    return json.dumps({"facts": given}, ensure_ascii=False)


def rewritten(*arguments: object) -> int:
    return exits_cleanly(main, ["facts", *map(str, arguments)])


def answers(path: Path) -> dict[str, str]:
    return {question.id: question.answer for question in load_questions(path)}


def test_prose_becomes_facts_of_the_evidence_or_of_the_rows_and_other_references_stay(
    teacher: Server, db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher.default = facts("布洛芬")
    out = tmp_path / "out.jsonl"
    path = written(tmp_path / "q.jsonl", FACTS, SEARCH)
    assert rewritten(path, "--out", out, "--db", db) == 0
    assert answers(out) == {"3": "syrup", "s-1": "布洛芬"}
    teacher.default = facts("Drug 3.", "rest")
    assert rewritten(written(tmp_path / "p.jsonl", PROSE), "--out", tmp_path / "p_out.jsonl") == 0
    assert answers(tmp_path / "p_out.jsonl") == {"p-1": "Drug 3; rest"}, "the evidence is enough, without a database"
    assert len(teacher.requests) == 2
    printed = capsys.readouterr().out
    assert "1 of 1 references of prose are facts now" in printed
    assert "Cost: 1 requests, 100 + 10 tokens" in printed
    assert '"Drug 3; rest"' in teacher.prompt, "the sources are shown"


def test_a_fact_that_is_no_span_is_asked_for_again_and_prose_stays_where_that_does_not_help(
    teacher: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "q.jsonl", PROSE)
    teacher.script = [facts("Drug 3", "bed rest"), facts("Drug 3", "rest")]
    assert rewritten(path, "--out", tmp_path / "one.jsonl") == 0
    assert answers(tmp_path / "one.jsonl") == {"p-1": "Drug 3; rest"}
    assert '"bed rest" is not a verbatim part of a source' in teacher.prompt
    teacher.default = facts("Drug 3", "bed rest")
    assert rewritten(path, "--out", tmp_path / "two.jsonl") == 0
    assert answers(tmp_path / "two.jsonl") == {"p-1": PROSE["ground_truth"]}
    assert len(teacher.requests) == 4
    printed = capsys.readouterr().out
    assert "0 of 1 references of prose are facts now" in printed
    assert "still prose: p-1" in printed


def test_an_interrupted_command_goes_on_where_it_was(teacher: Server, tmp_path: Path) -> None:
    rows = [PROSE | {"qid": f"p-{number}"} for number in range(20)]
    path, out = written(tmp_path / "q.jsonl", *rows), tmp_path / "new" / "out.jsonl"
    teacher.default = facts("Drug 3")
    teacher.script = [*([teacher.default] * 4), 400]
    assert rewritten(path, "--out", out) == 2, "the teacher failed on the fifth"
    done = len(answers(out))
    assert done == len(teacher.requests) - 1 < 20, "nothing that was paid for is lost"
    with out.open("a", encoding="utf-8") as file:
        file.write('{"id": "p-16", "quest')  # as a killed process leaves it
    asked = len(teacher.requests)
    assert rewritten(path, "--out", out) == 0
    assert len(teacher.requests) == asked + 20 - done
    assert answers(out) == {f"p-{number}": "Drug 3" for number in range(20)}


@pytest.mark.parametrize(("out", "said"), [("q.jsonl", "is the input file"), ("q.jsonl/o.jsonl", "cannot write")])
def test_what_cannot_be_written_is_said_before_anything_is_paid_for(
    out: str, said: str, teacher: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "q.jsonl", PROSE)
    path.write_text(content := path.read_text().rstrip())
    assert rewritten(path, "--out", tmp_path / out) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert path.read_text() == content
    assert not teacher.requests


def test_prose_without_any_source_stays_and_costs_nothing(
    teacher: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "q.jsonl", PROSE | {"evidence": []})
    assert rewritten(path, "--out", tmp_path / "out.jsonl") == 0
    assert teacher.requests == []
    assert "neither evidence nor rows" in capsys.readouterr().out


def test_without_a_teacher_it_says_what_to_set(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                               monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.delenv("TEACHER_MODEL", raising=False)
    path = written(tmp_path / "q.jsonl", PROSE)
    assert rewritten(path, "--out", tmp_path / "out.jsonl") == 2
    assert "TEACHER_MODEL" in capsys.readouterr().err
