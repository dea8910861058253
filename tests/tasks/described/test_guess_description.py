"""What `sql-agent init` guesses about a database, and what it says about it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from sql_agent.errors import DataError
from sql_agent.tasks.described.description import Description, Table, as_toml, read_description
from sql_agent.tasks.described.guess_description import guess_description
from sql_agent.tasks.described.table_rows import read_database
from sql_agent.tasks.described.words import label_of, plural_of, singular_of, unit_of, with_article
from tests.tasks.described.databases import make_hospital, make_library, make_shop


def guess(path: Path) -> tuple[Description, list[str]]:
    said: list[str] = []
    return guess_description(read_database(path), path.name, None, said.append), said


def test_kinds_follow_from_the_values_of_a_shop(tmp_path: Path) -> None:
    found, said = guess(make_shop(tmp_path / "shop.db"))
    kinds = {name: column.kind for name, column in found.tables["products"].columns.items()}
    assert kinds == {
        **{"sku": "id", "productName": "name", "category": "category", "price": "number", "materials": "list"},
        **{"is_discontinued": "flag", "weight_g": "number"},
    }
    assert found.tables["products"].columns["weight_g"].unit == "g"
    assert found.tables["customers"].columns["joined"].kind == "date"
    assert (found.tables["order"].name, found.tables["order_items"].name) == ("order_no", None)
    assert sorted(link.label for link in found.links) == ["city", "customer", "order", "product"]
    assert "`products.materials` looks like a list separated by ,: 69% of cells" in said


def test_chinese_columns_and_an_empty_table(tmp_path: Path) -> None:
    found, said = guess(make_library(tmp_path / "library.db"))
    assert found.lang == "zh" and list(found.tables) == ["作者", "图书"]
    assert found.tables["图书"].name == "书名"
    assert found.tables["图书"].columns["主题"].separator == "、"
    assert "`借阅` is left out: it has no rows" in said


def test_links_without_declared_keys_and_names_inside_texts(tmp_path: Path) -> None:
    found, said = guess(make_hospital(tmp_path / "hospital.db"))
    links = {(*link.source, link.target[0], link.contains) for link in found.links}
    assert links == {
        ("doctors", "department_id", "departments", False),
        ("treatments", "offered_by", "departments", True),
    }
    assert any(line.startswith("`treatments.offered_by` names rows of `departments`: 100%") for line in said)


def test_a_written_description_is_read_as_it_was(tmp_path: Path) -> None:
    for make in (make_shop, make_library, make_hospital):
        found, _ = guess(make(tmp_path / f"{make.__name__}.db"))
        file = tmp_path / "written.toml"
        file.write_text(as_toml(found), encoding="utf-8")
        assert read_description(file) == found


def test_a_database_without_rows_cannot_be_described(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "empty.db")) as connection:
        connection.execute("CREATE TABLE a (b TEXT)")
    with pytest.raises(DataError, match="every table of the database is empty"):
        guess(tmp_path / "empty.db")


def test_words_of_identifiers() -> None:
    assert label_of("customerName", "customer") == "name"
    assert label_of("order_qty") == "order quantity"
    assert (label_of("long_title"), label_of("long")) == ("long title", "longitude")
    assert unit_of("weight_kg") == "kg" and unit_of("kg") == ""
    assert [plural_of(word) for word in ("city", "address", "date of birth", "series", "box", "person")] == [
        *("cities", "addresses", "dates of birth", "series", "boxes", "people"),
    ]
    assert [singular_of(word) for word in ("order items", "categories", "status", "people")] == [
        *("order item", "category", "status", "person"),
    ]
    assert [with_article(word) for word in ("price", "age", "unit price", "hour")] == [
        *("a price", "an age", "a unit price", "an hour"),
    ]


def guess_table(path: Path, columns: str, rows: Sequence[tuple[object, ...]]) -> Table:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE things (id INTEGER PRIMARY KEY, {columns})")
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO things VALUES (NULL, {marks})", rows)
    return guess(path)[0].tables["things"]


def test_a_postcode_names_no_row_and_a_price_or_a_sentence_is_no_list(tmp_path: Path) -> None:
    notes = ("Studied in Bern, works here for {} years.", "Studied in Rome, Bern, works here for {} years.", "Retired.")
    rows = [(f"{10000 + n}", f"€ {n % 7},50" if n % 3 else "n.a.", notes[n % 3].format(n % 4)) for n in range(60)]
    table = guess_table(tmp_path / "a.db", "zip TEXT, price TEXT, about TEXT", rows)
    assert table.name != "zip"
    assert "list" not in {column.kind for column in table.columns.values()}


def test_a_share_of_one_is_not_called_percent(tmp_path: Path) -> None:
    rows = [(f"Thing {n}", n / 100, n) for n in range(60)]
    table = guess_table(tmp_path / "a.db", "name TEXT, fee_pct REAL, tax_pct REAL", rows)
    assert (table.columns["fee_pct"].unit, table.columns["tax_pct"].unit) == ("", "%")
