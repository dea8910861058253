"""A damaged cell is found and named, and sound text is left alone."""

from __future__ import annotations

import pytest

from sql_agent.tasks.cells import suspicious_cells


@pytest.mark.parametrize(
    ("text", "damage"),
    [
        ("Parkinson&#39;s disease", "HTML"),
        ("H<sub>2</sub>O", "HTML"),
        (" N/A ", "texts that mean an empty cell"),
        ("NULL", "texts that mean an empty cell"),
        ("café".encode().decode("cp1252"), "text of a wrong encoding"),
        ("发热头痛".encode().decode("gb18030"), "text of a wrong encoding"),
        ("发热，头痛".encode().decode("latin-1"), "text of a wrong encoding"),
        ("锟斤拷", "text of a wrong encoding"),
        ("nausea, vomiting, rash, fever; headache; dizziness; dry mouth; fatigue", "long lists with mixed separators"),
    ],
)
def test_a_damaged_cell_is_named_with_its_column(text: str, damage: str) -> None:
    assert suspicious_cells({"drugs.form": ["sound", text]}) == {damage: [f"drugs.form: {text}"]}


@pytest.mark.parametrize(
    "text",
    [
        "a < b and c > d, R&D",
        "无",
        "É a São Paulo café “façade”",
        "联通 α≥3 ℃ 适应症：发热、头痛；疼痛",
        "nausea; vomiting; rash; fever; headache; dizziness; dry mouth; fatigue; sweating",
        "12",
    ],
)
def test_sound_text_is_not_suspicious(text: str) -> None:
    assert suspicious_cells({"drugs.form": ["a text", text]}) == {}


def test_a_column_of_numbers_stored_as_text_is_named_but_not_one_of_codes() -> None:
    columns: dict[str, list[object]] = {
        "weight": ["12", "3.5"],
        "code": ["007", "12"],
        "barcode": ["69012345", "69012346"],
        "price": [1, 2],
    }
    assert suspicious_cells(columns) == {"numbers stored as text": ["weight: 12", "weight: 3.5"]}
