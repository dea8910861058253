"""What a source holds gets into the two tables, what does not is told with its place, and nothing in it is run."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from sql_agent.__main__ import main
from sql_agent.database import open_database
from sql_agent.tasks.medical.tables import SCHEMA, create_table_sql
from tests.support.mariadb import empty_database, execute

GRAPH = {
    "演示片": {"成份": ["甲", "乙"], "不良反应": ["头痛"], "英文名": ["Demo"], "商品名": ["示范"]},
    "演示病": {"常见症状": ["发热", "咳嗽"], "就诊科室": ["内科"]},
    "演示检查": {"相关疾病": ["演示病"]},
    "坏的": ["没有谓词"],
}


def run(source: object, folder: Path, *more: str) -> int:
    return main(["data", "import", str(source), "--db", str(folder / "out.db"), *more])


def rows(folder: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "out.db")) as connection:
        return connection.execute(sql).fetchall()


def rejected(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "out.db.rejected.jsonl").read_text(encoding="utf-8").splitlines()]


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("archived", [False, True])
def test_cmekg_becomes_drugs_and_diseases_and_the_rest_is_named(
    archived: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = written(tmp_path, "cmekg.pkl", pickle.dumps(GRAPH, protocol=0))
    if archived:
        with tarfile.open(tmp_path / "PyCMeKG.tar.gz", "w:gz") as archive:
            archive.add(source, "PyCMeKG/pyCMeKG/model/cmekg.pkl")
        source = tmp_path / "PyCMeKG.tar.gz"
    assert run(source, tmp_path) == 0
    assert rows(tmp_path, "SELECT med_name, component, adverse_reactions, description FROM drugs_info") == [
        ("演示片", "甲；乙", "头痛", "英文名：Demo；商品名：示范")
    ]
    assert rows(tmp_path, "SELECT disease_name, clinical_manif, overview FROM disease") == [
        ("演示病", "发热；咳嗽", "就诊科室：内科")
    ]
    assert [entry["place"] for entry in rejected(tmp_path)] == ["演示检查", "坏的"]
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 rows of drugs_info and 1 rows of disease added" in shown
    assert "2 records were rejected" in shown
    assert "100.0%" in shown
    with open_database(tmp_path / "out.db", SCHEMA) as database:
        assert database.query("SELECT count(*) FROM disease").records == ((1,),)


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path / 'was-run'}",)

    assert run(written(tmp_path, "evil.pkl", pickle.dumps({"演示片": Evil()})), tmp_path) == 2
    assert not (tmp_path / "was-run").exists()
    assert not (tmp_path / "out.db").exists()
    assert "system" in capsys.readouterr().err


def test_labels_of_openfda_are_drugs_with_the_brand_as_their_name(tmp_path: Path) -> None:
    labels = [
        {
            "openfda": {"brand_name": ["Demozol"], "generic_name": ["DEMO"]},
            "warnings": ["Drowsiness"],
            "stop_use": ["x"],
        },
        {"indications_and_usage": ["a label without a name"]},
        "no label",
        {"openfda": {"brand_name": ["Odd"]}, "warnings": {"nested": 1}},
    ]
    source = written(tmp_path, "labels.json", json.dumps({"results": labels}))
    assert run(source, tmp_path) == 0
    assert rows(tmp_path, "SELECT med_name, precautions, adverse_reactions FROM drugs_info") == [
        ("Demozol", "Drowsiness", "x")
    ]
    assert [(entry["place"], entry["reason"].split(":")[0]) for entry in rejected(tmp_path)] == [
        ("result 2", "no med_name"),
        ("result 3", "it is not a JSON object"),
        ("result 4", "precautions is not a text"),
    ]


def test_a_table_of_ones_own_is_read_through_a_mapping_and_bad_lines_stop_nothing(tmp_path: Path) -> None:
    table = "Brand,Uses,More uses\nA,fever,pain\n,nobody\nB,cough,\nA,fever,pain\nC,,\n,fever,x\n"
    source = written(tmp_path, "products.csv", b"\xef\xbb\xbf" + table.encode() + b"D,\xff\xfe,x\n")
    mapping = written(
        tmp_path, "m.toml", 'separator="; "\n[drugs_info]\nmed_name="Brand"\nindication=["Uses","More uses"]\n'
    )
    assert run(source, tmp_path, "--mapping", str(mapping)) == 0
    assert rows(tmp_path, "SELECT id, med_name, indication FROM drugs_info") == [
        (1, "A", "fever; pain"),
        (2, "B", "cough"),
    ]
    assert [entry["place"] for entry in rejected(tmp_path)] == [f"line {number}" for number in (3, 5, 6, 7, 8)]


def test_every_source_line_is_a_row_or_is_rejected_and_a_second_source_adds_to_the_first(tmp_path: Path) -> None:
    lines = [
        '{"disease_name": "Gout", "cause": "uric acid"}',
        "{broken",
        "[]",
        "",
        '{"med_name": "Demo", "form": "tablet"}',
    ]
    assert run(written(tmp_path, "a.jsonl", "\n".join(lines)), tmp_path) == 0
    assert len(rejected(tmp_path)) == 2
    with closing(sqlite3.connect(tmp_path / "b.db")) as other:
        other.execute("CREATE TABLE disease (disease_name, treatment, unknown)")
        other.execute("INSERT INTO disease VALUES ('Flu', 'rest', 1), (CAST(x'ff41' AS TEXT), 'x', 1), (NULL, 'x', 1)")
        other.commit()
    assert run(tmp_path / "b.db", tmp_path) == 0
    assert rows(tmp_path, "SELECT id, disease_name FROM disease") == [(1, "Gout"), (2, "Flu")]
    assert rows(tmp_path, "SELECT med_name FROM drugs_info") == [("Demo",)]
    assert [entry["place"] for entry in rejected(tmp_path)] == ["disease, row 2", "disease, row 3"]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("nothing.csv", "", "empty"),
        ("none.csv", "Brand,Uses\nA,fever\n", "the source has the fields Brand, Uses"),
        ("x.json", "[]", "results"),
        ("x.db", "no database", "not a database"),
        ("x.xls", "", "unknown file format"),
        ("x.xlsx", "no workbook", "cannot read"),
        ("x.parquet", "no parquet", "cannot read"),
        ("twice.csv", "med_name,form,form\nIron,a,b\n", "several columns 'form'"),
        ("x.pkl", b"\x80\x04broken", "cannot read"),
    ],
)
def test_a_source_that_gives_nothing_is_an_error_and_leaves_the_database_as_it_was(
    name: str, content: str | bytes, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(written(tmp_path, name, content), tmp_path) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out.db").exists()


DIRTY = """Drug;Uses;ICD10
Haloperidol;Parkinson&#39;s disease; eGFR &lt; 30;F20
Iron;H<sub>2</sub>O<br/>a < b, <b and c> d;-
N/A;cough;x
Aspirin;N/A;x
Zinc; none ;x
Iron;other;x
"""


def test_a_dirty_csv_gives_plain_texts_and_says_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = DIRTY.replace("Parkinson&#39;s disease; eGFR &lt; 30", '"Parkinson&#39;s disease; eGFR&nbsp;&lt; 30"')
    source = written(tmp_path, "products.csv", table)
    mapping = written(tmp_path, "m.toml", '[drugs_info]\nmed_name="Drug"\nindication="Uses"\nstorage="Keep"\n')
    assert run(source, tmp_path, "--mapping", str(mapping)) == 0
    assert rows(tmp_path, "SELECT med_name, indication FROM drugs_info") == [
        ("Haloperidol", "Parkinson's disease; eGFR < 30"),
        ("Iron", "H2O a < b, <b and c> d"),
        ("Iron", "other"),
    ]
    assert [entry["place"] for entry in rejected(tmp_path)] == ["line 4", "line 5", "line 6"]
    shown = " ".join(capsys.readouterr().out.split())
    assert "drugs_info has 1 names in several rows, such as Iron" in shown
    assert "nothing maps them to a column: ICD10" in shown
    assert "in the mapping, but not in the source: Keep" in shown


def test_a_source_that_is_imported_twice_adds_its_rows_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = written(tmp_path, "a.csv", "med_name,form\nIron,tablet\nZinc,syrup\n")
    assert run(source, tmp_path) == 0
    written(tmp_path, "a.csv", "med_name,form\nIron,tablet\nZinc,syrup\nGold,syrup\n")
    assert run(source, tmp_path) == 0
    assert rows(tmp_path, "SELECT id, med_name FROM drugs_info") == [(1, "Iron"), (2, "Zinc"), (3, "Gold")]
    assert "2 rejected: the database has this row already (line 2, line 3)" in " ".join(capsys.readouterr().out.split())
    assert run(source, tmp_path) == 0
    assert "no row added" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("mapping", "told"),
    [
        ("[medicines]\nmed_name='x'", "medicines"),
        ("[drugs_info]\nmed_name='x'\nuses='y'", "drugs_info has no column uses"),
        ("[disease]\ncause='y'", "disease needs disease_name"),
        ("[disease", "is not valid TOML"),
    ],
)
def test_a_wrong_mapping_names_what_is_wrong(
    mapping: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = written(tmp_path, "a.csv", "x,y\n1,2\n")
    assert run(source, tmp_path, "--mapping", str(written(tmp_path, "m.toml", mapping))) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_mysql_database_is_read_and_its_password_is_never_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with empty_database() as url:
        execute(url, "CREATE TABLE drugs_info (med_name TEXT, form TEXT, period DATE)")
        execute(url, "INSERT INTO drugs_info VALUES ('演示片', '片剂', '2026-01-31'), ('', 'x', NULL)")
        assert run(url.replace("mysql+pymysql:", "mariadb:"), tmp_path) == 0
    assert rows(tmp_path, "SELECT med_name, form, period FROM drugs_info") == [("演示片", "片剂", "2026-01-31")]
    assert run("mysql://root:geheim@127.0.0.1:1/x", tmp_path) == 2
    with pytest.raises(SystemExit, match="2"):
        run("mysql://root:geheim[1@127.0.0.1/x", tmp_path)
    assert "geheim" not in "".join(capsys.readouterr())


def test_a_file_in_wal_mode_that_others_have_open_keeps_its_rows_and_gets_the_new_ones(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "out.db")) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute(create_table_sql("disease"))
        other.execute("INSERT INTO disease (disease_name) VALUES ('Gout')")
        other.commit()  # into the file beside it
        assert run(written(tmp_path, "a.csv", "disease_name,cause\nFlu,virus\n"), tmp_path) == 0
        assert other.execute("SELECT disease_name FROM disease").fetchall() == [("Gout",), ("Flu",)]
    assert rows(tmp_path, "SELECT disease_name FROM disease") == [("Gout",), ("Flu",)]


def test_rows_are_added_to_a_server_after_those_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        {"disease_name": "Gout", "cause": "uric \\ 'acid' 😀"},
        {"disease_name": "Influenza", "cause": "its name is too long for the column"},
        {"med_name": "Demo", "form": "tablet"},
        {},
    ]
    source = written(tmp_path, "a.jsonl", "\n".join(map(json.dumps, lines)))
    with empty_database() as url:
        execute(url, "CREATE TABLE disease (id INT PRIMARY KEY, disease_name VARCHAR(5), cause TEXT)")
        execute(url, "INSERT INTO disease VALUES (7, 'Flu', 'virus')")
        assert main(["data", "import", str(source), "--db", url]) == 0
        assert execute(url, "SELECT * FROM disease") == ((7, "Flu", "virus"), (8, "Gout", lines[0]["cause"]))
        assert execute(url, "SELECT id, med_name, form FROM drugs_info") == ((1, "Demo", "tablet"),)
        with open_database(url, SCHEMA) as database:
            assert database.query("SELECT count(*) FROM disease").records == ((2,),)
        name = url.rpartition("/")[2]
    log = (tmp_path / f"{name}.rejected.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(json.loads(line)["place"] for line in log) == ["line 2", "line 4"]
    shown = capsys.readouterr().out
    assert "1 rows of drugs_info and 1 rows of disease added" in " ".join(shown.split())


@pytest.mark.parametrize("engine", ["InnoDB", "MyISAM"])
def test_an_import_that_fails_leaves_the_tables_of_a_server_as_they_were(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # The table has no column for the second row.
    lines = '{"disease_name": "Gout", "cause": "x"}\n{"disease_name": "Flu", "treatment": "x"}'
    source = written(tmp_path, "a.jsonl", lines)
    with empty_database() as url:
        execute(url, f"CREATE TABLE disease (id INT PRIMARY KEY, disease_name TEXT, cause TEXT) ENGINE={engine}")
        assert main(["data", "import", str(source), "--db", url]) == 2
        assert execute(url, "SHOW TABLES") == (("disease",),)
        assert execute(url, "SELECT * FROM disease") == ()
