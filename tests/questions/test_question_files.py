"""Question files: what is written is read back, and a fault in a user's file is named with its place."""

from __future__ import annotations

import json
import random
import resource
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sql_agent.errors import ConfigError, DataError
from sql_agent.questions.question_columns import ColumnMapping
from sql_agent.questions.question_files import load_questions, write_jsonl, write_parquet
from sql_agent.schemas import Evidence, Question
from tests.support.users_questions import written

# Lone surrogates cannot be written as UTF-8.
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
        enough=st.none(),
    )
    | st.builds(
        Question, id=texts, question=texts, answer=st.sampled_from(["a; b; c", "甲；乙；丙"]), enough=st.integers(1, 3)
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda question: question.id,
)


@settings(max_examples=40)
@given(questions)
def test_both_formats_give_back_what_was_written(written: list[Question]) -> None:
    with TemporaryDirectory() as folder:
        parquet, lines = Path(folder) / "q.parquet", Path(folder) / "q.jsonl"
        write_parquet(parquet, written)
        write_jsonl(lines, ((question, {"split": "train"}) for question in written))
        assert load_questions(parquet) == written
        assert load_questions(lines) == written


@pytest.mark.parametrize(
    "write", [write_parquet, lambda path, questions: write_jsonl(path, ((question, {}) for question in questions))]
)
def test_a_disk_that_takes_no_more_leaves_the_file_as_it_was(
    tmp_path: Path, write: Callable[[Path, list[Question]], None]
) -> None:
    path = tmp_path / "q.out"
    path.write_text("before")
    many = [Question(id=f"{i}", question=f"{random.random()}?", answer=f"{random.random()}") for i in range(5_000)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write(path, many)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_users_file_needs_three_columns_only(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    pd.DataFrame({"id": ["1"], "question": ["Why?"], "answer": ["because"], "source": ["me"]}).to_parquet(path)
    assert load_questions(path) == [Question(id="1", question="Why?", answer="because")]


@pytest.mark.parametrize(("answer", "text"), [(27, "27"), (27.0, "27"), (2.5, "2.5"), (0, "0")])
def test_an_answer_may_be_a_number(tmp_path: Path, answer: float, text: str) -> None:
    lines, table = tmp_path / "mine.jsonl", tmp_path / "mine.parquet"
    lines.write_text(json.dumps({"id": 1, "question": "How many?", "answer": answer}) + "\n", encoding="utf-8")
    pd.DataFrame({"id": ["1"], "question": ["How many?"], "answer": [answer]}).to_parquet(table)
    for path in (lines, table):
        assert load_questions(path) == [Question(id="1", question="How many?", answer=text)]


def test_a_number_that_is_missing_is_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    pd.DataFrame({"id": ["1", "2"], "question": ["How many?", "How few?"], "answer": [3, None]}).to_parquet(path)
    with pytest.raises(DataError, match="row 2, column answer: missing"):
        load_questions(path)


def test_pandas_reads_the_evidence(tmp_path: Path) -> None:
    item = Evidence(table="disease", row_id=3, field="cause", quote="smoking")
    write_parquet(tmp_path / "q.parquet", [Question(id="1", question="q", answer="a", evidence=(item,))])
    frame = pd.read_parquet(tmp_path / "q.parquet")
    assert list(frame.columns) == [
        "id", "question", "answer", "sql", "evidence", "task_type", "lang", "enough", "database",
    ]  # fmt: skip
    assert list(frame["evidence"][0]) == [item.model_dump()]


def test_a_question_without_an_id_gets_one_from_its_row(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "a?", "answer": "b"}\n\n{"id": null, "question": "c?", "answer": "d"}\n', "utf-8")
    assert [question.id for question in load_questions(path)] == ["mine-1", "mine-3"]


@pytest.mark.parametrize(
    ("second", "place"),
    [
        ({"id": "2", "question": "q"}, "row 2, column answer"),
        ({"id": "2", "question": "", "answer": "a"}, "row 2, column question"),
        ({"id": 2.5, "question": "q", "answer": "a"}, "row 2, column id"),
        ({"id": "1", "question": "q", "answer": "a"}, "row 2, column id: '1' is also in row 1"),
        ({"id": "2", "question": "q", "answer": "a", "lang": "fr"}, "row 2, column lang"),
        ({"id": "2", "question": "q", "answer": "a; b", "enough": 3}, "row 2, column enough"),
        ({"id": "2", "question": "q", "answer": "a; b", "enough": 0}, "row 2, column enough"),
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
        ("q.jsonl", b"{broken\n", "row 1 cannot be read as JSON"),
        ("q.jsonl", b'{"id": ' + b"[" * 100_000, "row 1 cannot be read as JSON"),
        ("q.jsonl", b'{"id": ' + b"9" * 5_000 + b"}", "row 1 cannot be read as JSON"),
        ("q.jsonl", b"\xff\xfe\n", "not UTF-8"),
        ("q.jsonl", b"\n", "contains no question"),
        ("q.parquet", b"not parquet", "not a parquet file"),
        ("q.csv", b"id,question,answer\n", "neither .parquet nor .jsonl"),
    ],
)
def test_an_unreadable_file_is_an_error(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_questions(tmp_path / name)


def test_a_parquet_file_with_a_text_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    texts = pa.array([b"Why?", b"\xed\xa0\x80 a?"], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 2, texts.buffers())
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"id": ["1", "2"], "question": column, "answer": ["a", "b"]}), path)
    with pytest.raises(DataError, match=r"mine\.parquet contains text that is not UTF-8"):
        load_questions(path)


def test_a_byte_order_mark_of_windows_is_no_part_of_the_first_row(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"id": "1", "question": "Why?", "answer": "because"}), encoding="utf-8-sig")
    assert load_questions(path) == [Question(id="1", question="Why?", answer="because")]


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        load_questions(tmp_path / "none.parquet")


USERS_ROW = {
    "qid": "a-1",
    "task_type": "compare_drugs",
    "question": "布洛芬和 Drug 3 的剂型有什么不同？",
    "sql": ["SELECT med_name, form FROM drugs_info WHERE id IN (9001, 3)"],
    "evidence": [{"source_table": "drugs_info", "row_id": 9001, "field": "form", "quote": "片剂", "score": 0.9}],
    "meta": {"entity": {"drug_id": 9001}, "created_at": "2026-11-22"},
    "ground_truth": "**布洛芬**是片剂。\n\nDrug 3 没有记录。",
}


def test_a_conversation_in_the_format_of_openai_is_a_question(tmp_path: Path) -> None:
    call = {"function": {"name": "query", "arguments": '{"sql": "SELECT form FROM drugs_info"}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "In which form does Aspirin come?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "tablet"},
        {"role": "assistant", "content": "tablet"},
    ]
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"messages": messages}) + "\n", encoding="utf-8")
    (question,) = load_questions(path)
    assert (question.question, question.answer) == ("In which form does Aspirin come?", "tablet")
    assert question.statements == ("SELECT form FROM drugs_info",)


def test_other_names_of_columns_are_read_and_what_is_no_field_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "q.jsonl", USERS_ROW, {"id": 7, "question": "What treats 3?", "answer": "Drug 3"})
    first, second = load_questions(path)
    assert (first.id, first.answer, first.task_type) == ("a-1", USERS_ROW["ground_truth"], "compare_drugs")
    assert first.statements == ("SELECT med_name, form FROM drugs_info WHERE id IN (9001, 3)",)
    assert first.evidence == (Evidence(table="drugs_info", row_id=9001, field="form", quote="片剂"),)
    assert (second.id, first.lang, second.lang) == ("7", "zh", "en"), "a row without a language has that of its text"


def test_a_list_of_statements_keeps_its_order_and_their_texts(tmp_path: Path) -> None:
    statements = ["SELECT ';' FROM disease -- one; two", "SELECT id FROM drugs_info;"]
    (question,) = load_questions(written(tmp_path / "q.jsonl", USERS_ROW | {"sql": statements}))
    assert question.statements == ("SELECT ';' FROM disease -- one; two", "SELECT id FROM drugs_info")


MAPPING = """
id = "key"
answer = "output.reference"
sql = "output.gold sql"
evidence = "output.sources"

[evidence_item]
table = "place.table"
row_id = "pk"
"""
NESTED_ROW = {
    "key": "n-1",
    "question": "Which form has Drug 3?",
    "answer": "somebody's own column",
    "output": {
        "reference": "tablet",
        "gold sql": "SELECT form FROM drugs_info",
        "sources": [{"place": {"table": "drugs_info"}, "pk": 3, "field": "form", "quote": "tablet"}],
    },
}


@pytest.mark.parametrize("name", ["q.jsonl", "q.parquet"])
def test_a_mapping_file_names_nested_columns(tmp_path: Path, name: str) -> None:
    (tmp_path / "mapping.toml").write_text(MAPPING, encoding="utf-8")
    path = tmp_path / name
    pd.DataFrame([NESTED_ROW]).to_parquet(path) if path.suffix == ".parquet" else written(path, NESTED_ROW)
    (question,) = load_questions(path, ColumnMapping.load(tmp_path / "mapping.toml"))
    assert question == Question(
        id="n-1", question="Which form has Drug 3?", answer="tablet", sql="SELECT form FROM drugs_info",
        evidence=(Evidence(table="drugs_info", row_id=3, field="form", quote="tablet"),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("identity = 'key'", "no field 'identity'"),
        ("id = 3", "id is not the name of a column"),
        ("[evidence_item]\npage = 'p'", "no field 'page'"),
        ("evidence_item = 'x'", "evidence_item is not a table"),
        ("id = ", "not valid TOML"),
        ("lang = 'output.tongue'", "output.tongue, which no row of"),
    ],
)
def test_a_wrong_mapping_says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mapping.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        load_questions(written(tmp_path / "q.jsonl", USERS_ROW), ColumnMapping.load(tmp_path / "mapping.toml"))


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"ground_truth": " "}, "row 1, column ground_truth: missing"),
        ({"sql": [1]}, "row 1, column sql"),
        (
            {"evidence": [{"source_table": 3, "row_id": 1, "field": "f", "quote": "q"}]},
            "column evidence.0.source_table",
        ),
        ({"evidence": ["text"]}, "column evidence.0: not an object"),
    ],
)
def test_a_fault_is_named_by_the_users_own_column(tmp_path: Path, change: dict[str, object], place: str) -> None:
    with pytest.raises(DataError, match=place):
        load_questions(written(tmp_path / "q.jsonl", USERS_ROW | change))


def test_several_statements_are_one_text_whose_parts_are_told_apart() -> None:
    question = Question(id="1", question="q", answer="a", sql="SELECT ';' AS a FROM t; -- b; c\nSELECT 2;")
    assert question.statements == ("SELECT ';' AS a FROM t", "-- b; c\nSELECT 2")
