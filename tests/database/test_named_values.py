"""What a question names is found in the database: names, also misspelt or called otherwise, and items of cells."""

from __future__ import annotations

import gc
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from sql_agent.database import Database, Naming, RequiredSchema, open_database
from sql_agent.database.cell_texts import CellTexts
from sql_agent.database.name_index import Name, NameIndex
from sql_agent.database.named_values import MAX_VALUES, NamedValue, ValueIndex, best_values

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
    ("脚气", "穿胶鞋；久站不动；雨天胶鞋不透气；胶鞋太紧"),
    ("腿肿", "久站者多见"),
]

_LONG = "Atrophy of many systems with low orthostatic pressure"  # longer than the items of cells that are looked up


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


RANKED = RequiredSchema(
    {"drug": ("name", "treats", "effects", "warning"), "illness": ("title", "signs", "people")},
    hint="none",
    names={"drug": Naming("name"), "illness": Naming("title", called={"代谢紊乱": ("酸碱中毒",)})},
)
RANKED_DRUGS = [
    *((f"药{number}颗粒", "通络定痛，活血", "酸中毒，头晕", "") for number in range(100)),
    *((f"人用狂犬病疫苗{number}号", "狂犬病，预防狂犬病", "", "狂犬病暴露者") for number in range(3)),
    ("甲片", "引发闭经者；用于男性肝炎", "闭经；易发肝炎，可发闭经", "易诱发闭经"),
    ("乙片", "需戒烟；可助人戒烟", "各种疾病治疗", "病治疗时；神经系统疾病者慎用；有神经系统疾病者忌用"),
    ("丙片", "戒烟", *("加入少量水，加少量酒，极少量，少量的血" * 6 for _ in range(2))),
    ("丁片", "神经系统疾病；神经系统疾病史", "含神经系统疾病", ""),
]
RANKED_ILLNESSES = [("代谢紊乱", "酸中毒；恶心", "神经系统疾病；老人"), ("癌", "神经系统疾病；痛", "")]


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path = tmp_path_factory.mktemp("ranked") / "drugs.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE drug (id INTEGER PRIMARY KEY, name TEXT, treats TEXT, effects TEXT, warning TEXT)"
        )
        connection.execute("CREATE TABLE illness (id INTEGER PRIMARY KEY, title TEXT, signs TEXT, people TEXT)")
        connection.executemany("INSERT INTO drug (name, treats, effects, warning) VALUES (?, ?, ?, ?)", RANKED_DRUGS)
        connection.executemany("INSERT INTO illness (title, signs, people) VALUES (?, ?, ?)", RANKED_ILLNESSES)
    with open_database(path, RANKED) as opened:
        yield opened


@pytest.mark.parametrize(
    ("question", "found"),
    [
        # The items 闭经 and 戒烟 count, not the longer parts of other items, 发闭经 and 人戒烟.
        ("会并发闭经的病", ["drug.effects, drug.treats LIKE '%闭经%'"]),
        ("帮人戒烟的药", ["drug.treats LIKE '%戒烟%'"]),
        # A word that occurs often but is never an item, such as 少量, is no term.
        ("要少量吃", []),
        # 定痛 is a piece of an unknown drug's name.
        ("舒络定痛颗粒怎么吃", []),
        # 狂犬 is no item, but several drugs are called so.
        ("狂犬疫苗有几种", ["drug.treats, drug.warning, drug.name LIKE '%狂犬%'"]),
        # Three columns have the word as an item, and two inside other items.
        (
            "神经系统疾病患者的药",
            ["drug.treats, illness.signs, illness.people, drug.warning LIKE '%神经系统疾病%'"],
        ),
        # Three characters are no misspelling of the other name 酸碱中毒.
        ("酸中毒怎么办", ["drug.effects, illness.signs LIKE '%酸中毒%'"]),
        ("酸碱中独怎么办", ["illness.title = '代谢紊乱'"]),
    ],
)
def test_of_overlapping_parts_items_count_before_parts_of_items(
    ranked: Database, question: str, found: list[str]
) -> None:
    assert list(map(str, ranked.named_values(question))) == found


def test_a_word_is_shown_with_columns_that_have_it_as_an_item_then_with_those_that_have_it_most(tmp_path: Path) -> None:
    path = tmp_path / "drugs.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE drug (id INTEGER PRIMARY KEY, name TEXT, treats TEXT, colour TEXT, box TEXT)")
        connection.execute("CREATE TABLE illness (id INTEGER PRIMARY KEY, title TEXT, signs TEXT)")
        # Only `colour` has the word as an item; LIKE finds it more often in `treats`.
        rows = [
            ("a", "剧烈头痛", "白；头痛", "头痛者慎用"),
            ("b", "偏头痛", "白；红", ""),
            ("c", "有头痛感", "红；白", "遇头痛停用"),
        ]
        connection.executemany("INSERT INTO drug (name, treats, colour, box) VALUES (?, ?, ?, ?)", rows)
        connection.execute("INSERT INTO illness (title, signs) VALUES ('x', '头痛欲裂')")
    with open_database(path, SCHEMA) as database:
        (value,) = database.named_values("头痛怎么办")
    assert str(value) == "drug.colour, drug.treats, illness.signs LIKE '%头痛%'"  # at most two columns of a table


def test_an_index_that_nobody_needs_is_freed_without_garbage_collection() -> None:
    texts = CellTexts({("drug", "treats"): "头痛\0牙痛"})
    index = ValueIndex(NameIndex([("布洛芬片", Name("布洛芬片", "drug", "name"))]), texts)
    assert index.named_in("布洛芬片治头痛吗")
    freed, was_enabled = weakref.ref(index), gc.isenabled()
    gc.disable()
    del index
    assert freed() is None, "worker.py freezes the indexes: the garbage collector never sees them again"
    if was_enabled:
        gc.enable()


def named_in_table(
    folder: Path, table: str, columns: Sequence[str], rows: Sequence[Sequence[str]], asked: str, naming: Naming
) -> list[str]:
    """Return the values that the question `asked` names in a database with one table."""
    path = folder / "t.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE {table} ({', '.join(f'{column} TEXT' for column in columns)})")
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' for _ in columns)})", rows)
    with open_database(path, RequiredSchema({table: (naming.column,)}, hint="-", names={table: naming})) as opened:
        return list(map(str, opened.named_values(asked)))


def test_common_words_of_prose_name_nothing_although_names_begin_with_them(tmp_path: Path) -> None:
    prose = "What causes {} is not known, and the low dose of a drug helps with most of the symptoms; patient{}"
    titles = (
        "What to know about gout",
        "What to know about lice",
        "Low vision",
        "THE syndrome",
        "Klinefelter syndrome",
    )
    rows = [(title, prose.format(title, number)) for number, title in enumerate((*titles, *map(str, range(120))))]
    naming = Naming("title", called={"THE syndrome": ("THE",)})
    asked = "What is the dose with low risk for Klinefelter? And what for low vision?"
    assert named_in_table(tmp_path, "illness", ("title", "signs"), rows, asked, naming) == [
        "illness.title LIKE '%klinefelter%'",
        "illness.signs LIKE '%klinefelter%'",
        "illness.title = 'Low vision'",
    ]


def test_a_frequent_item_of_lists_is_no_common_word(tmp_path: Path) -> None:
    effects = "headache; nausea; rash; a dry mouth; trouble with sleep; loss of hair; pain in the joints"
    rows = [(f"drug {n}", effects) for n in range(200)]
    found = named_in_table(tmp_path, "drug", ("name", "effects"), rows, "Which of them cause headache?", Naming("name"))
    assert found == ["drug.effects LIKE '%headache%'"]


def test_a_word_that_cells_have_with_a_capital_only_is_named_wherever_it_is(tmp_path: Path) -> None:
    rows = [
        (
            "Klinefelter syndrome",
            "Changes in GJB2, said people in Saguenay; Klinefelter saw it.",
            "Pfizer Europe MA EEIG",
        ),
        ("Gout", "The first signs come in spring.", "Merck"),
    ]
    asked = "Is gjb2 named, what of Saguenay in spring, the first of pfizer, and Klinefelter?"
    assert named_in_table(tmp_path, "illness", ("title", "cause", "firm"), rows, asked, Naming("title")) == [
        "illness.cause LIKE '%gjb2%'",
        "illness.cause LIKE '%saguenay%'",
        "illness.firm LIKE '%pfizer%'",
        "illness.title LIKE '%klinefelter%'",
        "illness.cause LIKE '%klinefelter%'",
    ]


def test_a_word_that_cells_have_is_no_misspelt_name(tmp_path: Path) -> None:
    rows = [
        ("Glutaric acidemia", "The defect is made in the liver, and a fever comes late."),
        ("Nail-patella syndrome", "The nail and the patella are small; a syndrome of the skin."),
        ("Histiocytosis", "The cells are many."),
    ]
    naming = Naming("title", called={"Glutaric acidemia": ("MADD",)})
    columns = ("title", "cause")
    assert not named_in_table(tmp_path, "illness", columns, rows, "His mother made a list.", naming)
    (tmp_path / "t.db").unlink()
    asked = "nail patella syndrome, or maddd?"
    assert named_in_table(tmp_path, "illness", columns, rows, asked, naming) == [
        "illness.title = 'Nail-patella syndrome'",
        "illness.title = 'Glutaric acidemia'",
    ]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("How do you catch head lice?", "Parasites - Lice - Head Lice"),
        ("Is there a vaccine for Omsk hemorrhagic fever?", "Omsk Hemorrhagic Fever (OHF)"),
        ("What is ohf?", "Omsk Hemorrhagic Fever (OHF)"),
        ("Is sleeping sickness deadly?", "Trypanosomiasis (also known as Sleeping Sickness)"),
        ("How common is Wilson's disease?", "Wilson disease"),
        ("What of atrophy of many systems with low orthostatic pressure?", _LONG),
        ("How long does Kleine-Levin go on?", "Kleine-Levin syndrome"),  # "syndrome" ends many names
    ],
)
def test_a_row_is_found_by_a_name_inside_its_name_and_by_a_beginning_of_its_own(
    tmp_path: Path, asked: str, found: str
) -> None:
    names = (
        *("Parasites - Lice - Head Lice", "Omsk Hemorrhagic Fever (OHF)", "Wilson disease", "Kleine-Levin syndrome"),
        *("Trypanosomiasis (also known as Sleeping Sickness)", _LONG, "Crimean fever", "Levin disease"),
        *("Crohn's disease of the small bowel", "Diabetes insipidus", *(f"Gen{n}ou syndrome" for n in range(20))),
    )
    rows = [(name, f"The {name} is rare.") for name in names]
    values = named_in_table(tmp_path, "illness", ("title", "cause"), rows, asked, Naming("title"))
    assert f"illness.title = '{found}'" in values


def test_a_part_of_a_name_with_another_end_or_of_several_names_names_no_row(tmp_path: Path) -> None:
    names = ("Diabetes insipidus", "Crohn's disease of the small bowel", "Aspirin - Tablet", "Codeine - Tablet")
    rows = [(name, f"The {name} is known; Crohn's disease") for name in names]
    asked = "Signs of diabetes and of Crohn's disease, and who makes a tablet?"
    found = named_in_table(tmp_path, "illness", ("title", "cause"), rows, asked, Naming("title"))
    assert "illness.title LIKE '%diabetes%'" in found and "illness.cause LIKE '%crohn''s disease%'" in found
    assert not [value for value in found if " = " in value]


def test_of_many_values_the_names_of_rows_are_kept_wherever_they_stand() -> None:
    text = ("aaa", "LIKE"), ("bbbb", "LIKE"), ("ccccc", "LIKE"), ("Gout", "=")
    values = [NamedValue(columns=(("t", "c"),), operator=operator, value=value) for value, operator in text]
    assert [value.value for value in best_values(values, 2)] == ["ccccc", "Gout"]
