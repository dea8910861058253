"""A spreadsheet, a Parquet file or a CSV file in another encoding is imported, and a mapping for it is proposed."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import date
from pathlib import Path

import pandas as pd
import pytest

from sql_agent.__main__ import main
from sql_agent.tasks.described.description import read_description

ROWS = [
    {"药品名称": "阿司匹林", "适应症": "发热&#44;头痛", "副作用": "N/A", "生产厂家": "甲厂", "颜色": "白"},
    {"药品名称": "布洛芬", "适应症": "疼痛<br>发热", "副作用": "恶心", "生产厂家": "-", "颜色": "红"},
]
SHEETS: dict[str, dict[str, list[str]]] = {
    "ills": {"What": ["Gout", "Flu"], "Symptoms": ["pain", "fever"]},
    "pills": {"Brand": ["A"], "sideEffects": ["nausea"], "Uses": ["x"]},
    "empty": {},
}
MAPPING = '[drugs_info]\nmed_name = "药品名称"\nindication = "适应症"\nadverse_reactions = "副作用"\n'


def run(*arguments: object) -> int:
    return main(["data", "import", *map(str, arguments)])


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def source(folder: Path, name: str, records: Sequence[Mapping[str, object]]) -> Path:
    path, table = folder / name, pd.DataFrame([*records])
    if name.endswith(".xlsx"):
        table.to_excel(path, index=False)
    elif name.endswith(".parquet"):
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, encoding=path.stem, sep=";" if name.endswith(".csv") else "\t")
    return path


@pytest.mark.parametrize("name", ["a.xlsx", "a.parquet", "gb18030.csv", "utf-8.tsv", "utf-8-sig.csv"])
def test_each_format_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(MAPPING, encoding="utf-8")
    assert run(source(tmp_path, name, ROWS), "--db", tmp_path / "out.db", "--mapping", mapping) == 0
    assert rows(tmp_path / "out.db", "SELECT med_name, indication, adverse_reactions FROM drugs_info") == [
        ("阿司匹林", "发热,头痛", None),
        ("布洛芬", "疼痛 发热", "恶心"),
    ]


@pytest.mark.parametrize("name", ["gb18030.csv", "a.xlsx"])
def test_a_source_without_a_database_gets_a_mapping_that_imports_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = source(tmp_path, name, ROWS)
    assert run(path) == 0
    assert [*tmp_path.iterdir()] == [path]
    printed = capsys.readouterr().out
    assert "颜色 │ 白 │ – │ not imported: nothing like it" in " ".join(printed.split())
    assert ("gb18030, separated by ;" in printed) == name.endswith(".csv")
    proposed = printed[printed.index("[drugs_info]") : printed.index("Nothing was imported")]
    assert proposed.strip() == f'{MAPPING}company_name = "生产厂家"'
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(proposed, encoding="utf-8")
    assert run(path, "--db", tmp_path / "out.db", "--mapping", mapping) == 0
    assert rows(tmp_path / "out.db", "SELECT company_name FROM drugs_info") == [("甲厂",), (None,)]


def test_sheets_are_tables_and_a_column_of_different_values_is_proposed_as_the_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "clinic.xlsx"
    with pd.ExcelWriter(path) as book:
        for sheet, cells in SHEETS.items():
            pd.DataFrame(cells).to_excel(book, sheet_name=sheet, index=False)
    assert run(path) == 0
    printed = capsys.readouterr().out
    assert "100% of its values are different" in printed
    assert 'separator = "; "' in printed
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(printed[printed.index("separator") : printed.index("Nothing was")], encoding="utf-8")
    assert run(path, "--db", tmp_path / "out.db", "--mapping", mapping) == 0
    assert rows(tmp_path / "out.db", "SELECT disease_name, clinical_manif FROM disease") == [
        ("Gout", "pain"),
        ("Flu", "fever"),
    ]
    assert rows(tmp_path / "out.db", "SELECT med_name, adverse_reactions, indication FROM drugs_info") == [
        ("A", "nausea", "x")
    ]


def test_a_source_about_other_things_is_pointed_to_a_table_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(source(tmp_path, "utf-8.csv", [{"sku": 1, "weight": 2}, {"sku": 3, "weight": 4}])) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "its fields: sku, weight" in told
    assert "--table NAME" in told


def test_a_table_of_any_database_keeps_all_fields_and_is_described_by_init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    kettle = {
        "name": "Kettle &amp; lid",
        "price": 12.5,
        "stock": 3,
        "code": "007",
        "since": date(2024, 1, 31),
        "x": "-",
    }
    pan = {"name": "Pan", "price": 8, "stock": 10, "code": "010", "since": date(2025, 2, 1)}
    records = [kettle | {"x": "-"}, pan | {"x": "N/A"}, pan]
    path = source(tmp_path, "products.xlsx", records)
    assert run(path, "--db", "shop.db", "--table", "products") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "shop.db: 3 rows in the new table products" in printed
    assert "because no row fills them: x" in printed
    assert "1 rows are the same as another row" in printed
    stored = [("Kettle & lid", 12.5, 3, "007", "2024-01-31"), *[("Pan", 8.0, 10, "010", "2025-02-01")] * 2]
    assert rows(tmp_path / "shop.db", "SELECT * FROM products") == stored

    assert run(path, "--db", "shop.db", "--table", "Products") == 2
    assert "has a table Products already" in capsys.readouterr().err
    assert rows(tmp_path / "shop.db", "SELECT * FROM products") == stored

    assert run(source(tmp_path, "utf-8.csv", [{"customer": "Ann", "spent": 3}]), "--db", "shop.db", "--table", "c") == 0
    assert main(["init", "shop.db"]) == 0
    described = read_description(tmp_path / "shop.toml").tables
    assert described.keys() == {"products", "c"}
    assert described["products"].columns["price"].kind == "number"
    assert described["products"].columns["since"].kind == "date"


def test_fields_that_differ_only_in_case_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = source(tmp_path, "utf-8.csv", [{"Name": "a", "year": 1999, "name": "b"}])
    assert run(path, "--db", tmp_path / "out.db", "--table", "t") == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "the fields Name and name differ only in case" in told and "rename one" in told
    assert not (tmp_path / "out.db").exists()


def test_a_database_that_writes_its_columns_in_another_case_gets_each_row_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(MAPPING, encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        connection.execute("CREATE TABLE Drugs_Info (ID, Med_Name, Indication, Adverse_Reactions)")
    command = [source(tmp_path, "utf-8.csv", ROWS), "--db", tmp_path / "out.db", "--mapping", mapping]
    assert run(*command) == 0
    assert rows(tmp_path / "out.db", "SELECT id, med_name FROM drugs_info") == [(1, "阿司匹林"), (2, "布洛芬")]
    assert run(*command) == 0
    assert "2 rejected: the database has this row already" in " ".join(capsys.readouterr().out.split())
    assert len(rows(tmp_path / "out.db", "SELECT * FROM drugs_info")) == 2
