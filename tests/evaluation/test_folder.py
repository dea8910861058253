"""The folder of an evaluation survives a process that is killed in the middle of a write."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.errors import DataError
from sql_agent.evaluation.folder import About, EvaluationFolder
from tests.support.records import record

ABOUT = About(model="m", judge="facts/3", version="0", started="now", settings={"seed": 0})


def test_records_behind_a_line_that_was_cut_off_are_read(tmp_path: Path) -> None:
    folder = EvaluationFolder.create(tmp_path, ABOUT, {"test": [record(i).question for i in (1, 2)]})
    folder.append("test", record(1))
    with (tmp_path / "records.jsonl").open("a") as sink:
        sink.write('{"set": "test", "record": {"question": {"id": "q2"')
    assert list(folder.records()) == [("test", "q1")]
    with folder.lock():
        folder.append("test", record(2))
    assert list(EvaluationFolder.open(tmp_path).records()) == [("test", "q1"), ("test", "q2")]


def test_the_last_record_of_a_question_counts(tmp_path: Path) -> None:
    folder = EvaluationFolder.create(tmp_path, ABOUT, {"test": [record(1).question]})
    folder.append("test", record(1, None))
    folder.append("test", record(1, 1.0))
    assert folder.records()["test", "q1"].dropped is None


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no evaluation in"):
        EvaluationFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("file", "line", "said"),
    [
        ("config.json", "{}", "config.json is damaged, or another version of this program wrote it: model: Field req"),
        ("questions.jsonl", '{"set": "a", "question": {"id": 3}}', "questions.jsonl, line 2 .* question.id: "),
        ("records.jsonl", '{"set": "a", "record": {}}', "records.jsonl, line 2 .* record.question: Field required"),
        ("records.jsonl", "{", "records.jsonl, line 2 .* Invalid JSON"),
    ],
)
def test_a_folder_of_another_version_is_refused_with_its_file_and_line(
    file: str, line: str, said: str, tmp_path: Path
) -> None:
    folder = EvaluationFolder.create(tmp_path, ABOUT, {"test": [record(1).question]})
    folder.append("test", record(1))
    path = tmp_path / file
    path.write_text(line if file == "config.json" else f"{path.read_text()}{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=said):
        folder.about(), folder.sets(), folder.records()
