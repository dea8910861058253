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
    appender = folder.appender()
    appender.add("test", record(1))
    appender.close()
    with (tmp_path / "records.jsonl").open("a") as sink:
        sink.write('{"set": "test", "record": {"question": {"id": "q2"')
    assert list(folder.records()) == [("test", "q1")]
    appender = folder.appender()
    appender.add("test", record(2))
    appender.close()
    assert list(EvaluationFolder.open(tmp_path).records()) == [("test", "q1"), ("test", "q2")]


def test_the_last_record_of_a_question_counts(tmp_path: Path) -> None:
    folder = EvaluationFolder.create(tmp_path, ABOUT, {"test": [record(1).question]})
    appender = folder.appender()
    appender.add("test", record(1, None))
    appender.add("test", record(1, 1.0))
    appender.close()
    assert folder.records()["test", "q1"].dropped is None


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no evaluation"):
        EvaluationFolder.open(tmp_path)
