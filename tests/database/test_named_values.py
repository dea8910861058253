"""What a question names is found in the database: names, also misspelt or called otherwise, and items of cells."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sql_agent.database import Database, Naming, RequiredSchema, open_database
from sql_agent.database.named_values import MAX_VALUES

SCHEMA = RequiredSchema(
    {"drug": ("name", "treats", "colour", "box"), "illness": ("title", "signs")},
    hint="none",
    names={"drug": Naming("name", called={"布洛芬片": ("芬必得",)}), "illness": Naming("title")},
)
DRUGS = [
    ("布洛芬片", "头痛；牙痛；关节炎", "red", "10"),
    ("布洛芬缓释胶囊", "头痛", "white", "20"),
    ("灵芝胶囊", "失眠，多梦", "brown", "30"),
    ("Aspirin tablets", "pain; fever", "dark red", "40"),
    ("Cancidas", "candida", "white", "50"),
    ("天舒胶囊", "头晕；晕车", "brown", "8"),
    ("天蟾胶囊", "疼痛", "brown", "9"),
    ("注射用牛肺表面活性剂", "呼吸窘迫", "white", "1"),
    ("盆炎净颗粒(无糖型)", "腹胀", "brown", "6"),
    ("盆炎净颗粒", "腹胀", "brown", "7"),
    ("氯喹那多—普罗雌烯阴道片", "阴道炎；beta–blocker", "white", "5"),
    *((f"药{number}号丸", "咳嗽", "red", "12") for number in range(40)),
]
ILLNESSES = [
    ("牙痛", "牙龈肿胀；失眠"),
    ("精索静脉曲张", "坠胀；久站"),
    ("Gout", "pain"),
    ("倦怠", "服灵芝胶囊后好转；灵芝胶囊见效"),
    ("脚气", "穿胶鞋；久站不动"),
    ("腿肿", "久站者多见"),
]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path = tmp_path_factory.mktemp("named") / "drugs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE drug (id INTEGER PRIMARY KEY, name TEXT, treats TEXT, colour TEXT, box TEXT)")
    connection.execute("CREATE TABLE illness (id INTEGER PRIMARY KEY, title TEXT, signs TEXT)")
    connection.executemany("INSERT INTO drug (name, treats, colour, box) VALUES (?, ?, ?, ?)", DRUGS)
    connection.executemany("INSERT INTO illness (title, signs) VALUES (?, ?)", ILLNESSES)
    connection.commit()
    connection.close()
    with open_database(path, SCHEMA) as opened:
        yield opened


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("吃了布洛芬缓释胶囊还头痛怎么办", ["drug.name = '布洛芬缓释胶囊'", "drug.treats LIKE '%头痛%'"]),
        ("芬必得是什么颜色的", ["drug.name = '布洛芬片'"]),
        ("灵芝胶襄治什么", ["drug.name = '灵芝胶囊'"]),
        ("灵芝胶囊治什么", ["drug.name = '灵芝胶囊'"]),
        ("怀疑自己精锁静脉曲张", ["illness.title = '精索静脉曲张'"]),
        ("牙痛吃什么", ["illness.title = '牙痛'", "drug.treats LIKE '%牙痛%'"]),
        ("布洛芬有哪几种", ["drug.name LIKE '%布洛芬%'"]),
        ("失眠怎么回事", ["drug.treats, illness.signs LIKE '%失眠%'"]),
        ("what is aspirin tablets for?", ["drug.name = 'Aspirin tablets'"]),
        ("Which drugs are red?", ["drug.colour LIKE 'red'"]),
        ("Can I eat candied oranges?", []),
        ("are there 12 or 50 in a box", []),
        ("天蝉胶囊是处方药吗", ["drug.name = '天舒胶囊'", "drug.name = '天蟾胶囊'"]),
        ("牛肺表面活性剂怎么用", ["drug.name LIKE '%牛肺表面活性剂%'"]),
        ("盆炎净颗粒（不是另一种）谁不能用", ["drug.name = '盆炎净颗粒'"]),
        ("氯喹那多-普罗雌烯阴道片多少钱", ["drug.name = '氯喹那多—普罗雌烯阴道片'"]),
        ("名字带“静脉”的病有几个", ["illness.title LIKE '%静脉%'"]),
        ("穿了胶鞋脚痒", ["illness.signs LIKE '%胶鞋%'"]),
        ("天天久站会怎样", ["illness.signs LIKE '%久站%'"]),
        ("今天天气怎么样", []),
        ("", []),
    ],
)
def test_a_question_names_values(database: Database, question: str, found: list[str]) -> None:
    assert list(map(str, database.named_values(question))) == found


def test_a_name_is_misspelt_only_where_the_text_has_no_other_name(database: Database) -> None:
    assert list(map(str, database.named_values("灵芝胶囊和布洛芬片"))) == [
        "drug.name = '灵芝胶囊'",
        "drug.name = '布洛芬片'",
    ]


def test_a_condition_runs_as_it_is_written(database: Database) -> None:
    questions = (
        "失眠怎么回事",
        "Which drugs are red?",
        "牙痛吃什么",
        "芬必得",
        "芬必",
        "氯喹那多-普罗",
        "beta-blocker",
    )
    for question in questions:
        for value in database.named_values(question):
            for table, column in value.columns:
                literal = value.value.replace("'", "''")
                answer = database.query(f"SELECT * FROM {table} WHERE {column} {value.operator} '{literal}'")
                assert answer.count > 0, value


def test_a_long_text_names_few_values_and_no_text_breaks_the_look_up(database: Database) -> None:
    names = "、".join(name for name, *_ in DRUGS)
    assert len(database.named_values(names * 30)) == MAX_VALUES
    for text in ("'; DROP TABLE drug; --", "\ud800布洛芬片", "\0" * 1000, "牙" * 5000, "%", "{name}"):
        database.named_values(text)


def test_a_word_is_shown_with_the_columns_that_have_it_most(tmp_path: Path) -> None:
    path = tmp_path / "drugs.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE drug (id INTEGER PRIMARY KEY, name TEXT, treats TEXT, colour TEXT, box TEXT)")
        connection.execute("CREATE TABLE illness (id INTEGER PRIMARY KEY, title TEXT, signs TEXT)")
        # Only one cell of `colour` has the word as an item; LIKE finds it in three columns.
        rows = [
            ("a", "剧烈头痛", "白；头痛", "头痛者慎用"),
            ("b", "偏头痛", "白；红", ""),
            ("c", "有头痛感", "红；白", "遇头痛停用"),
        ]
        connection.executemany("INSERT INTO drug (name, treats, colour, box) VALUES (?, ?, ?, ?)", rows)
        connection.execute("INSERT INTO illness (title, signs) VALUES ('x', '头痛欲裂')")
    with open_database(path, SCHEMA) as database:
        (value,) = database.named_values("头痛怎么办")
    assert str(value) == "drug.treats, drug.box, illness.signs LIKE '%头痛%'"  # at most two columns of a table
