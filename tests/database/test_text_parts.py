"""Which part of a text that no cell of a column has is offered after a query that found nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sql_agent.database import Database, RequiredSchema, open_database


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path: Path = tmp_path_factory.mktemp("forms") / "t.db"
    cells = ["糖浆剂：10%", "口服片剂", "口服胶囊；软膏", "口服颗粒", "Film-coated tablets", "软膏；口服", None]
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (form TEXT, pack TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, '瓶')", [(cell,) for cell in cells])
    connection.close()
    with open_database(path, RequiredSchema({"t": ("form",)}, hint="-")) as opened:
        yield opened


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("糖浆剂型", "form LIKE '%糖浆剂%'"),
        ("外用的软膏", "form LIKE '%软膏%'"),
        ("糖浆或软膏", "form LIKE '%糖浆%'"),  # fewer rows have 糖浆
        ("口服的片", None),  # 的 belongs to no part, and most rows have 口服
        ("口服糖浆", "form LIKE '%糖浆%'"),  # most rows have 口服
        ("口服溶液", None),
        ("TABLETS form", "form LIKE '%TABLETS%'"),
        ("film-coated pills", "form LIKE '%film-coated%'"),
        ("the film", "form LIKE '%film%'"),
        ("table d'hote", "form LIKE '%table%'"),
        ("a red pill", None),
        ("瓶装", None),
        ("我家孩子想喝甜的糖浆", "form LIKE '%糖浆%'"),
    ],
)
def test_the_longest_part_that_stands_in_the_column_is_told(forms: Database, text: str, expected: str | None) -> None:
    literal = text.replace("'", "''")
    told = forms.query(f"SELECT pack FROM t WHERE form LIKE '%{literal}%'").hint
    nowhere = f"nothing is like '{text}'; LIKE '%part%' finds parts"
    first = f"try: SELECT pack FROM t WHERE {expected}" if expected else nowhere
    assert (told or "").partition("\n")[0] == first


@pytest.mark.parametrize(("text", "expected"), [("EMA", None), ("oil", "oil"), ("HIV", "HIV")])
def test_a_short_word_is_found_only_where_it_is_a_word(tmp_path: Path, text: str, expected: str | None) -> None:
    rows = [("a", "granted", "oedema; boils"), ("b", "refused", "HIV感染; oil baths")]
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection, connection:
        connection.execute("CREATE TABLE t (name TEXT, approval TEXT, effects TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    with open_database(tmp_path / "t.db", RequiredSchema({"t": ("name",)}, hint="-")) as opened:
        told = opened.query(f"SELECT name FROM t WHERE approval LIKE '%{text}%'").hint or ""
    assert ("effects LIKE" in told) is (expected is not None)
