"""Question files: what is written is read back, and a fault in a user's file is named with its place."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sql_agent.data.question_files import load_questions, write_jsonl, write_parquet
from sql_agent.errors import DataError
from sql_agent.schemas import Evidence, Question

# Lone surrogates cannot be written as UTF-8, so no file holds them.
texts = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: bool(text.strip()))
evidence = st.builds(Evidence, table=texts, row_id=st.integers(min_value=0, max_value=2**62), field=texts, quote=texts)
questions = st.lists(
    st.builds(
        Question,
        id=texts,
        question=texts,
        answer=texts,
        lang=st.sampled_from(["zh", "en"]),
        sql=st.none() | texts,
        evidence=st.lists(evidence, max_size=3).map(tuple),
        task_type=st.sampled_from([None, "drug_field", "unanswerable"]),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda question: question.id,
)


@settings(max_examples=40, deadline=None)
@given(questions)
def test_both_formats_give_back_what_was_written(written: list[Question]) -> None:
    with TemporaryDirectory() as folder:
        parquet, lines = Path(folder) / "q.parquet", Path(folder) / "q.jsonl"
        write_parquet(parquet, written)
        write_jsonl(lines, ((question, {"split": "train"}) for question in written))
        assert load_questions(parquet) == written
        assert load_questions(lines) == written


def test_a_users_file_needs_three_columns_only(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    pd.DataFrame({"id": ["1"], "question": ["Why?"], "answer": ["because"], "source": ["me"]}).to_parquet(path)
    assert load_questions(path) == [Question(id="1", question="Why?", answer="because")]


def test_pandas_reads_the_evidence(tmp_path: Path) -> None:
    item = Evidence(table="disease", row_id=3, field="cause", quote="smoking")
    write_parquet(tmp_path / "q.parquet", [Question(id="1", question="q", answer="a", evidence=(item,))])
    frame = pd.read_parquet(tmp_path / "q.parquet")
    assert list(frame.columns) == ["id", "question", "answer", "sql", "evidence", "task_type", "lang"]
    assert list(frame["evidence"][0]) == [item.model_dump()]


@pytest.mark.parametrize(
    ("second", "place"),
    [
        ({"id": "2", "question": "q"}, "row 2, column answer"),
        ({"id": "2", "question": "", "answer": "a"}, "row 2, column question"),
        ({"id": 2, "question": "q", "answer": "a"}, "row 2, column id"),
        ({"id": "1", "question": "q", "answer": "a"}, "row 2, column id: '1' is also in row 1"),
        ({"id": "2", "question": "q", "answer": "a", "lang": "fr"}, "row 2, column lang"),
        ({"id": "2", "question": "q", "answer": "a", "evidence": [{"table": "t"}]}, "row 2, column evidence.0.row_id"),
        (["not", "an", "object"], "row 2 is not a JSON object"),
    ],
)
def test_a_fault_is_named_with_row_and_column(tmp_path: Path, second: object, place: str) -> None:
    path = tmp_path / "mine.jsonl"
    first = {"id": "1", "question": "q", "answer": "a"}
    path.write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load_questions(path)
    assert str(path) in caught.value.message
    assert place in caught.value.message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.jsonl", b"{broken\n", "row 1 is not JSON"),
        ("q.jsonl", b"\xff\xfe\n", "not UTF-8"),
        ("q.jsonl", b"\n", "holds no question"),
        ("q.parquet", b"not parquet", "not a parquet file"),
        ("q.csv", b"id,question,answer\n", "neither .parquet nor .jsonl"),
    ],
)
def test_an_unreadable_file_is_an_error(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_questions(tmp_path / name)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        load_questions(tmp_path / "none.parquet")
