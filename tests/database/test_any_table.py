"""A database may be opened with whatever tables it has; what is no table of it stays out of reach."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sql_agent.database import RequiredSchema, open_database
from sql_agent.errors import DatabaseFileError
from tests.support.orchard import write_spider_folder

ANY = RequiredSchema(None, hint="look elsewhere")


def test_every_table_may_be_read_and_nothing_else(tmp_path: Path) -> None:
    path = write_spider_folder(tmp_path) / "database" / "orchard" / "orchard.sqlite"
    with open_database(path, ANY) as database:
        assert dict(database.schema.columns)["harvest"] == ("tree_id", "year", "kilos", "buyer")
        assert database.query("SELECT kind FROM tree WHERE row = 2").records == (("apple",), ("quince",))
        assert database.query("SELECT text FROM note").records == (), "a table without rows may be read too"
        unknown = database.query("SELECT kind FROM trees").error
        assert unknown is not None and unknown.hint == "did you mean tree?"
        hidden = database.query("SELECT sql FROM sqlite_master").error
        assert hidden is not None and hidden.kind == "forbidden_table"


def test_a_hint_lists_as_many_tables_as_it_has_room_for(tmp_path: Path) -> None:
    path = tmp_path / "wide.sqlite"
    connection = sqlite3.connect(path)
    for number in range(40):
        connection.execute(f"CREATE TABLE table_{number} (a, b)")
    connection.close()
    with open_database(path, ANY) as database:
        asked = database.query("PRAGMA table_list").error
        missing = database.query("SELECT 1 FROM zzz").error
    for error in (asked, missing):
        assert error is not None and error.hint is not None
        assert "table_0, table_1" in error.hint and len(error.hint) <= 200


def test_a_file_without_tables_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE gone (a)")
    connection.execute("DROP TABLE gone")
    connection.close()
    with pytest.raises(DatabaseFileError, match="has no tables"):
        open_database(path, ANY)
