"""What a database holds is read as SQLite reads it, and asked about only where a question is plain."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sql_agent.errors import DatabaseFileError
from sql_agent.tasks.medical.questions.catalog import Catalog, read_catalog
from sql_agent.tasks.medical.questions.generate import make_questions
from tests.support.medical_questions import everything


def tiny(drugs: list[dict[str, object]], diseases: list[dict[str, object]]) -> Catalog:
    return Catalog({"drugs_info": drugs, "disease": diseases})


def test_search_in_memory_is_what_like_does() -> None:
    names = ["Ibuprofen", "Ibuprofen Plus", "É", "ibu", None]
    catalog = tiny(
        [{"id": n, "med_name": f"drug {n}", "indication": text} for n, text in enumerate(names)],
        [{"id": 1, "disease_name": "Gout"}],
    )
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (id, text)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", enumerate(names))
    for text in ("ibu", "IBUPROFEN", "é", "É", "plus", "x"):
        expected = [row[0] for row in connection.execute("SELECT id FROM t WHERE text LIKE ?", (f"%{text}%",))]
        assert [row.row_id for row in catalog.rows_with("drugs_info", "indication", text)] == expected
    connection.close()


def test_ambiguous_and_awkward_names_are_not_asked() -> None:
    names = ["Aspirin", "aspirin", "A;B", "50% glucose", "O'Neil's balm", "x"]
    catalog = tiny([{"id": n, "med_name": name} for n, name in enumerate(names)], [{"id": 1, "disease_name": "Gout"}])
    assert [row.name for row in catalog.askable("drugs_info")] == ["O'Neil's balm"]


def database_of(path: Path, drugs: str, diseases: str) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(f"CREATE TABLE drugs_info ({drugs}); CREATE TABLE disease ({diseases})")
    connection.execute("INSERT INTO drugs_info VALUES ('1', 'Aspirin')")
    connection.execute("INSERT INTO disease VALUES ('1', 'Gout')")
    connection.commit()
    connection.close()
    return path


def test_a_database_with_names_only_gives_no_questions(tmp_path: Path) -> None:
    path = database_of(tmp_path / "bare.db", "id INTEGER PRIMARY KEY, med_name TEXT", "id INTEGER, disease_name TEXT")
    assert list(everything(make_questions(read_catalog(path)))) == []


def test_ids_that_are_not_numbers_are_an_error(tmp_path: Path) -> None:
    path = database_of(tmp_path / "ids.db", "id TEXT, med_name TEXT", "id INTEGER, disease_name TEXT")
    with pytest.raises(DatabaseFileError, match=r"drugs_info\.id"):
        read_catalog(path)
