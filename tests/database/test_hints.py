"""What the tool says after a query that found nothing: statements that find rows, and nothing that would answer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sql_agent.config.settings import load_settings
from sql_agent.database import Database, Naming, RequiredSchema, open_database
from sql_agent.database.counterfactual import Change
from sql_agent.database.hints import MAX_LINES, suggested_statements
from sql_agent.database.provenance import evidence_read
from sql_agent.database.schema import MAX_HINT_CHARS
from sql_agent.reward.judges.prompt_parts import rows_text
from sql_agent.schemas import Evidence, QueryCall, QueryLimits
from sql_agent.tasks.medical.tables import SCHEMA, create_table_sql
from sql_agent.tasks.task import load_task
from tests.support.small_database import make_database

SECRET = "qzx"  # stands in every cell that is no name
DRUGS = [
    # name, indication, storage, description
    ("Ibuprofen", f"{SECRET} fever", f"{SECRET} cool", f"{SECRET} pain killer, also known as Brufen and Nurofen."),
    ("Ibuprofen gel", f"{SECRET} sprains", None, None),
    ("Aspirin", f"{SECRET} fever", "", None),
    (
        "布洛芬缓释胶囊",
        f"{SECRET} 发热",
        f"{SECRET} 阴凉",
        f"性状：{SECRET}；商品名：芬必得；巴米尔；英文名：Ibuprofen SR",
    ),
    ("注射用头孢曲松钠", f"{SECRET} 肺炎；慢性支气管炎", None, None),
    ("炉甘石", f"{SECRET} 瘙痒", f"{SECRET} 密封", None),
    ("甘精胰岛素", f"{SECRET} 血糖", None, None),
    ("格列齐特", f"{SECRET} 血糖", None, None),
]
DISEASES = [
    # name, overview, treatment, cause
    ("Hypertension", f"{SECRET} overview", f"{SECRET} Amlodipine", None),
    ("慢性支气管炎", f"别称：慢支；就诊科室：{SECRET}", f"{SECRET} 氨溴索", f"{SECRET} 吸烟"),
    ("癣", f"{SECRET} 概述", f"{SECRET} 治疗", None),
    ("感冒", f"{SECRET} 概述", None, f"{SECRET} 病毒"),
    ("甲状腺功能亢进症", None, None, None),
    ("急性心肌梗死", None, None, None),
    ("Chronic inflammatory airway disease", None, None, None),
]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path: Path = tmp_path_factory.mktemp("hints") / "medical.db"
    with sqlite3.connect(path) as connection:
        for table in ("drugs_info", "disease"):
            connection.execute(create_table_sql(table))
        connection.executemany(
            "INSERT INTO drugs_info (med_name, indication, storage, description) VALUES (?, ?, ?, ?)", DRUGS
        )
        connection.executemany(
            "INSERT INTO disease (disease_name, overview, treatment, cause) VALUES (?, ?, ?, ?)", DISEASES
        )
    connection.close()
    with open_database(path, SCHEMA) as opened:
        yield opened


def hint(database: Database, sql: str) -> str | None:
    answer = database.query(sql)
    return answer.error.hint if answer.error else answer.hint


def by_name(database: Database, name: str) -> str | None:
    return hint(database, f"SELECT indication FROM drugs_info WHERE med_name = '{name}'")


def suggested(database: Database, sql: str) -> tuple[str, ...]:
    """The statements that the hint for `sql` suggests; each of them is answered with rows."""
    statements = suggested_statements(hint(database, sql))
    for statement in statements:
        answer = database.query(statement)
        assert answer.records and answer.error is None, statement
    return statements


def first_condition(database: Database, sql: str) -> str:
    return suggested(database, sql)[0].partition(" WHERE ")[2]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("What is Ibuprofen good for", "med_name = 'Ibuprofen'"),
        ("布洛芬缓释胶囊有什么副作用", "med_name = '布洛芬缓释胶囊'"),
        ("Ibuprofen tablets 200 mg", "med_name = 'Ibuprofen'"),
        ("Ibuprofin", "med_name = 'Ibuprofen'"),
        ("ibuprofne", "med_name = 'Ibuprofen'"),
        ("布络芬缓释胶囊", "med_name = '布洛芬缓释胶囊'"),
        ("炉干石", "med_name = '炉甘石'"),
        ("头孢曲松注射液", "med_name = '注射用头孢曲松钠'"),
        ("ＩＢＵＰＲＯＦＥＮ", "med_name = 'Ibuprofen'"),
        ("buprofen g", "med_name LIKE '%buprofen g%'"),
        ("布洛芬", "med_name LIKE '%布洛芬%'"),
        ("头", "med_name LIKE '%头%'"),
        ("Brufen", "med_name = 'Ibuprofen'"),
        ("芬必得", "med_name = '布洛芬缓释胶囊'"),
        ("ibuprofen sr", "med_name = '布洛芬缓释胶囊'"),
        ("巴米耳", "med_name = '布洛芬缓释胶囊'"),
        ("Hypertension", "disease_name = 'Hypertension'"),
        ("癣", "disease_name = '癣'"),
        ("慢支", "disease_name = '慢性支气管炎'"),
        ("Hypertensoin", "disease_name = 'Hypertension'"),
        ("甲亢", "disease_name = '甲状腺功能亢进症'"),
        ("单位查出心梗", "disease_name = '急性心肌梗死'"),
        ("high blood pressure", "disease_name = 'Hypertension'"),
        ("长期吃头孢曲宋", "med_name = '注射用头孢曲松钠'"),
        ("每天打甘精胰岛索", "med_name = '甘精胰岛素'"),
        ("taking ibuprofin daily", "med_name = 'Ibuprofen'"),
    ],
)
def test_the_statement_with_the_nearest_name_is_suggested(database: Database, name: str, expected: str) -> None:
    assert first_condition(database, f"SELECT indication FROM drugs_info WHERE med_name = '{name}'") == expected


@pytest.fixture(scope="module")
def lookalikes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database in which the formal names of brands stand inside the names of other drugs."""
    drugs = [
        *("Escitalopram", "Metformin hydrochloride tablets", "Metformin and sitagliptin", "Levocetirizine"),
        *(
            "克拉霉素片",
            "阿克拉霉素B",
            "甲地高辛片",
            "右佐匹克隆片",
            "硫糖铝小檗碱片",
            "荨麻疹丸",
            "冻干人用狂犬病疫苗",
        ),
        *("氨氯地平阿托伐他汀钙片", "二甲双胍格列本脲片", "单硝酸异山梨酯片", "艾司西酞普兰片", "复方布洛芬片"),
        *("酒石酸美托洛尔缓释片", "注射用头孢曲松钠", "盐酸氟桂利嗪胶囊"),
    ]
    path: Path = tmp_path_factory.mktemp("lookalikes") / "medical.db"
    with sqlite3.connect(path) as connection:
        for table in ("drugs_info", "disease"):
            connection.execute(create_table_sql(table))
        connection.executemany("INSERT INTO drugs_info (med_name) VALUES (?)", [(drug,) for drug in drugs])
        connection.execute("INSERT INTO disease (disease_name) VALUES ('麻疹'), ('Acute bacterial conjunctivitis')")
    connection.close()
    with open_database(path, SCHEMA) as opened:
        yield opened


@pytest.mark.parametrize(
    ("brand", "expected"),
    [
        ("Glucophage", "med_name = 'Metformin hydrochloride tablets'"),
        ("甲红霉素", "med_name = '克拉霉素片'"),
        ("倍他乐克", "med_name = '酒石酸美托洛尔缓释片'"),
        ("罗氏芬", "med_name = '注射用头孢曲松钠'"),
        ("西比灵", "med_name = '盐酸氟桂利嗪胶囊'"),
        ("痧子", "disease_name = '麻疹'"),
    ],
)
def test_an_everyday_name_leads_to_the_drug_with_its_salt_and_form(
    lookalikes: Database, brand: str, expected: str
) -> None:
    assert first_condition(lookalikes, f"SELECT id FROM drugs_info WHERE med_name = '{brand}'") == expected


@pytest.mark.parametrize(
    "brand",
    [
        "pink eye",  # the row is the acute bacterial one
        "Celexa",
        "Zyrtec",
        "Januvia",
        "狄戈辛",
        "忆梦返",
        "黄连素",
        "风团",
        "恐水症",
        "立普妥",
        "优降糖",
        "消心痛",
        "喜普妙",
        "芬必得",
    ],
)
def test_an_everyday_name_never_leads_to_a_drug_whose_name_only_contains_the_formal_name(
    lookalikes: Database, brand: str
) -> None:
    assert by_name(lookalikes, brand) == f"nothing is like '{brand}'; LIKE '%part%' finds parts"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("急心肌", "disease_name = '急性心肌梗死'"),
        ("急心肌怎么办", "disease_name = '急性心肌梗死'"),
        ("第一针甘精", "med_name = '甘精胰岛素'"),
        ("格列药", "med_name = '格列齐特'"),
        ("CIAD", "disease_name = 'Chronic inflammatory airway disease'"),
    ],
)
def test_the_name_behind_an_abbreviation_is_suggested(database: Database, name: str, expected: str) -> None:
    assert first_condition(database, f"SELECT indication FROM drugs_info WHERE med_name = '{name}'") == expected


@pytest.mark.parametrize(
    "name", ["zebra stripes", "Warfarin", "完全不相干", "孩子咳嗽怎么办", "药", "q", "Ibex", "格列美脲", "急性肝硬化"]
)
def test_no_name_is_invented_where_none_is_near(database: Database, name: str) -> None:
    assert by_name(database, name) == f"nothing is like '{name}'; LIKE '%part%' finds parts"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("med_name LIKE '%布络芬缓释胶囊%'", "med_name = '布洛芬缓释胶囊'"),
        ('med_name = "Ibuprofin"', "med_name = 'Ibuprofen'"),
        ("lower(med_name) = 'ibuprofin'", "med_name = 'Ibuprofen'"),
        ("instr(med_name, 'Ibuprofin') > 0", "med_name = 'Ibuprofen'"),
        ("med_name IN ('Ibuprofin', 'Asprin')", "med_name IN ('Ibuprofen', 'Aspirin')"),
        ("med_name LIKE '%' || 'Ibuprofin' || '%'", "med_name = 'Ibuprofen'"),
    ],
)
def test_a_text_is_found_however_the_statement_looks_for_it(database: Database, condition: str, expected: str) -> None:
    assert first_condition(database, f"SELECT indication FROM drugs_info WHERE {condition}") == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "SELECT count(*) FROM drugs_info WHERE med_name = 'Ibuprofin'",
            "SELECT COUNT(*) FROM drugs_info WHERE med_name = 'Ibuprofen'",
        ),
        (
            "SELECT group_concat(storage) FROM drugs_info WHERE med_name = 'Ibuprofin'",
            "SELECT GROUP_CONCAT(storage) FROM drugs_info WHERE med_name = 'Ibuprofen'",
        ),
        (
            "SELECT g.storage FROM drugs_info g WHERE g.med_name = 'Ibuprofin' ORDER BY g.id LIMIT 3",
            "SELECT g.storage FROM drugs_info AS g WHERE g.med_name = 'Ibuprofen' ORDER BY g.id LIMIT 3",
        ),
        (
            "SELECT storage FROM drugs_info WHERE med_name = "
            "(SELECT treatment FROM disease WHERE disease_name = 'Hypertensoin')",
            "SELECT treatment FROM disease WHERE disease_name = 'Hypertension'",
        ),
        (
            "WITH found AS (SELECT * FROM disease WHERE disease_name = '慢性支气管') SELECT cause FROM found",
            "WITH found AS (SELECT * FROM disease WHERE disease_name LIKE '%慢性支气管%') SELECT cause FROM found",
        ),
        (
            "SELECT g.form FROM disease d JOIN drugs_info g ON d.treatment = g.med_name WHERE d.disease_name = '癣'",
            "SELECT disease_name, treatment FROM disease WHERE disease_name = '癣'",
        ),
    ],
)
def test_counts_subqueries_and_joins_get_a_hint_too(database: Database, sql: str, expected: str) -> None:
    assert suggested(database, sql)[0] == expected


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("med_name IN ('Aspirin', 'Ibuprofin')", "med_name IN ('Aspirin', 'Ibuprofen')"),
        ("med_name = 'Aspirin' OR med_name = 'Ibuprofin'", "med_name = 'Aspirin' OR med_name = 'Ibuprofen'"),
        ("med_name IN ('布洛芬', 'Aspirin')", "med_name IN ('布洛芬缓释胶囊', 'Aspirin')"),
        ("med_name IN ('Aspirin', 'Brufen')", "med_name IN ('Aspirin', 'Ibuprofen')"),
        ("(med_name IN ('感冒', 'Aspirin') OR id = 1)", "disease_name = '感冒'"),
        ("med_name IN ('aspirin', 'Ibuprofen')", "med_name IN ('Aspirin', 'Ibuprofen')"),
    ],
)
def test_a_name_of_a_list_that_finds_nothing_is_corrected_although_another_finds_a_row(
    database: Database, listed: str, expected: str
) -> None:
    sql = f"SELECT indication FROM drugs_info WHERE {listed}"
    assert database.query(sql).records
    assert first_condition(database, sql) == expected


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("med_name IN ('Aspirin', '胃')", "nothing is like '胃'; LIKE '%part%' finds parts"),
        ("med_name IN ('Aspirin', 'Ibuprofen')", None),
        ("med_name = 'Aspirin' OR med_name = 'Ibuprofen'", None),
        ("med_name = 'Aspirin' OR indication LIKE '%Ibuprofin%'", None),
        ("med_name IN ('Aspirin', 'Ibuprofen') AND indication LIKE '%sprains%' OR id = 1", None),
        ("med_name NOT IN ('Aspirin', 'Ibuprofin')", None),
        ("indication NOT IN ('Aspirin', 'Ibuprofin') AND id IN (1, 2)", None),
    ],
)
def test_a_list_gets_no_statement_where_none_is_better(database: Database, listed: str, expected: str | None) -> None:
    sql = f"SELECT indication FROM drugs_info WHERE {listed}"
    assert database.query(sql).records
    assert hint(database, sql) == expected


def test_the_conditions_that_find_rows_are_kept_and_the_column_of_the_others_is_read(database: Database) -> None:
    by_name = "SELECT storage, indication FROM drugs_info WHERE med_name = 'Ibuprofen'"
    sql = "SELECT storage FROM drugs_info WHERE med_name = 'Ibuprofen' AND indication LIKE '%migraine%'"
    assert hint(database, sql) == f"try: {by_name}\nnothing is like 'migraine'; LIKE '%part%' finds parts"
    both = "SELECT storage FROM drugs_info WHERE med_name = 'Ibuprofen' AND indication LIKE '%sprains%'"
    assert suggested(database, both) == (
        by_name,
        "SELECT storage, med_name FROM drugs_info WHERE indication LIKE '%sprains%'",
    )


def test_a_word_that_two_conditions_search_is_kept_once_where_it_is_found(database: Database) -> None:
    sql = "SELECT med_name FROM drugs_info WHERE indication LIKE '%sprains%' AND storage LIKE '%sprains%'"
    assert suggested(database, sql) == ("SELECT med_name, storage FROM drugs_info WHERE indication LIKE '%sprains%'",)


def test_of_a_text_in_no_cell_the_longest_part_is_searched_where_the_table_has_it(database: Database) -> None:
    said = hint(database, "SELECT disease_name FROM disease WHERE treatment LIKE '%天天吸烟又咳嗽%'")
    assert said is not None and said.startswith("try: SELECT disease_name FROM disease WHERE cause LIKE '%吸烟%'")
    assert hint(database, "SELECT cause FROM disease WHERE disease_name = '吸烟综合征'") == (
        "nothing is like '吸烟综合征'; LIKE '%part%' finds parts"
    ), "a row that is not there is not made up from a word of its name"


def test_the_texts_of_several_conditions_are_moved_together(database: Database) -> None:
    sql = "SELECT disease_name FROM disease WHERE treatment LIKE '%病毒%' AND overview LIKE '%感冒%'"
    first = suggested_statements(hint(database, sql))[0]
    assert first == "SELECT disease_name FROM disease WHERE cause LIKE '%病毒%' AND disease_name = '感冒'"
    assert database.query(first).records == (("感冒",),)


def test_what_a_statement_excludes_is_not_looked_for(database: Database) -> None:
    sql = "SELECT storage FROM drugs_info WHERE med_name = 'Ibuprofin' AND indication NOT LIKE '%fever%'"
    assert suggested(database, sql)[0] == "SELECT storage FROM drugs_info WHERE med_name = 'Ibuprofen'"
    assert hint(database, f"SELECT med_name FROM drugs_info WHERE indication NOT LIKE '%{SECRET}%'") is None


def test_a_text_of_another_column_or_table_is_searched_there(database: Database) -> None:
    assert hint(database, "SELECT indication FROM drugs_info WHERE med_name = '发热'") == (
        "try: SELECT med_name, indication FROM drugs_info WHERE indication LIKE '%发热%'"
    )
    assert suggested(database, "SELECT med_name FROM drugs_info WHERE storage LIKE '%吸烟%'") == (
        "SELECT disease_name FROM disease WHERE cause LIKE '%吸烟%'",
    )
    assert suggested(database, "SELECT med_name FROM drugs_info WHERE indication = 'fever'") == (
        "SELECT med_name FROM drugs_info WHERE indication LIKE '%fever%'",
    ), "it is a part of the cells that were searched"
    assert suggested(database, "SELECT count(*) FROM drugs_info WHERE storage LIKE '%发热%'") == (
        "SELECT COUNT(*) FROM drugs_info WHERE indication LIKE '%发热%'",
    )
    other_condition = "SELECT storage FROM drugs_info WHERE med_name = '发热' AND id > 2"
    assert suggested(database, other_condition)[0] == (
        "SELECT med_name, storage FROM drugs_info WHERE indication LIKE '%发热%' AND id > 2"
    )


def test_another_name_is_searched_in_a_text_by_the_name_of_the_row(database: Database) -> None:
    assert suggested(database, "SELECT count(*) FROM disease WHERE treatment LIKE '%慢支%'")[0] == (
        "SELECT COUNT(*) FROM disease WHERE overview LIKE '%慢支%'"
    )


def test_another_name_of_a_row_of_another_table_is_searched_by_the_name_of_that_row(database: Database) -> None:
    meant = "SELECT med_name FROM drugs_info WHERE indication LIKE '%慢性支气管炎%'"
    for column in ("indication", "storage", "treatment"):  # the right one, another one, one of the other table
        assert suggested(database, f"SELECT med_name FROM drugs_info WHERE {column} LIKE '%慢支%'")[0] == meant
    assert suggested(database, "SELECT med_name FROM disease WHERE treatment LIKE '%慢支%'")[0] == meant


@pytest.mark.parametrize(
    ("condition", "text"), [("disease_name = '慢性支气管炎'", "慢性支气管炎"), ("indication LIKE '%肺炎%'", "肺炎")]
)
def test_a_statement_that_asks_another_table_for_names_of_rows_is_moved_to_the_table_of_these_rows(
    database: Database, condition: str, text: str
) -> None:
    assert suggested(database, f"SELECT med_name FROM disease WHERE {condition}")[0] == (
        f"SELECT med_name FROM drugs_info WHERE indication LIKE '%{text}%'"
    )


def test_a_part_is_searched_before_a_near_name_but_not_in_place_of_a_name(database: Database) -> None:
    def in_cause(text: str) -> tuple[str, ...]:
        return suggested(database, f"SELECT disease_name FROM disease WHERE cause LIKE '%{text}%'")

    assert in_cause("感冒病毒")[0] == "SELECT disease_name FROM disease WHERE cause LIKE '%病毒%'"
    assert (
        in_cause("病毒性慢性支气管炎")[0]
        == "SELECT disease_name, cause FROM disease WHERE disease_name = '慢性支气管炎'"
    )
    assert in_cause("芬必得")[0] == "SELECT * FROM drugs_info WHERE med_name = '布洛芬缓释胶囊'"


def test_a_row_of_another_table_is_read_with_the_selected_columns_or_as_a_whole(database: Database) -> None:
    whole = "SELECT * FROM drugs_info WHERE med_name = 'Ibuprofen'"
    for outputs in ("examination", "disease_name, cause", "*"):
        assert suggested(database, f"SELECT {outputs} FROM disease WHERE disease_name = 'Ibuprofen'")[0] == whole
    shared_column = suggested(database, "SELECT id, cause FROM disease WHERE disease_name = 'Ibuprofen'")
    assert shared_column[0] == "SELECT id FROM drugs_info WHERE med_name = 'Ibuprofen'"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path: Path = tmp_path_factory.mktemp("many") / "medical.db"
    drugs = [
        ("福多司坦", "咳嗽", None),
        ("福多司坦片", "咳嗽", None),
        ("福多司坦胶囊", "咳嗽", "密封"),
        ("复方福多司坦胶囊", "咳嗽", "阴凉"),
        *((f"回春如意{number}胶囊", f"{SECRET} 头痛" * 30, "密封") for number in range(60)),
        *((f"药{number}胶囊", "腹胀", "密封") for number in range(60)),
    ]
    diseases = [
        ("卡斯钦—贝克病", "别称：大骨节病；就诊科室：骨科", "低硒"),
        ("大骨节病", "就诊科室：骨科", None),
        ("骨病", "就诊科室：骨科", None),
    ]
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("drugs_info", "disease"):
            connection.execute(create_table_sql(table))
        connection.executemany("INSERT INTO drugs_info (med_name, indication, storage) VALUES (?, ?, ?)", drugs)
        connection.executemany("INSERT INTO disease (disease_name, overview, cause) VALUES (?, ?, ?)", diseases)
    with open_database(path, SCHEMA) as opened:
        yield opened


def test_an_empty_cell_is_looked_for_in_the_row_of_an_alias_then_in_another_dosage_form(many: Database) -> None:
    cause = "SELECT cause FROM disease WHERE disease_name = '{}'"
    assert suggested(many, cause.format("大骨节病")) == (cause.format("卡斯钦—贝克病"),)
    assert suggested(many, cause.format("骨病")) == (cause.format("骨病").replace("cause", "overview"),)
    storage = "SELECT storage FROM drugs_info WHERE med_name = '{}'"
    assert suggested(many, storage.format("福多司坦")) == (storage.format("福多司坦胶囊"),)
    assert hint(many, storage.format("福多司坦")) == f"empty here: storage\ntry: {storage.format('福多司坦胶囊')}"
    # A filled cell is needed, and no tablet is called by more than 福多司坦片.
    assert suggested(many, storage.format("福多司坦片")) == (
        storage.format("福多司坦片").replace("storage", "indication"),
    )


def test_names_that_contain_their_alias_take_no_place_from_longer_names(tmp_path: Path) -> None:
    called = ("灵片", "灵丸", "灵散", "灵膏", "灵液")
    rows = [("灵", None, ""), *((name, None, "灵") for name in called), ("灵片丸散膏液", "filled", "")]
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection, connection:
        connection.execute("CREATE TABLE t (name TEXT, use TEXT, alias TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    naming = Naming("name", {"alias": str.split}, beside=frozenset("片丸散膏液"))
    with open_database(tmp_path / "t.db", RequiredSchema({"t": ("name",)}, hint="-", names={"t": naming})) as opened:
        sql = "SELECT use FROM t WHERE name = '{}'"
        assert suggested(opened, sql.format("灵")) == (sql.format("灵片丸散膏液"),)


def test_a_name_that_shares_little_more_than_a_dosage_form_is_not_near(many: Database) -> None:
    assert "胶囊" not in (by_name(many, "齐墩意胶囊") or "").replace("齐墩意胶囊", "")
    assert "'福多司坦胶囊'" in (by_name(many, "福多司但胶囊") or "")


def test_a_cut_result_says_how_many_rows_there_are(many: Database) -> None:
    where = "FROM drugs_info WHERE indication LIKE '%头痛%'"
    assert hint(many, f"SELECT med_name, indication {where}") == (
        "19 of 60 rows shown; select fewer columns to see more"
    )
    assert hint(many, f"SELECT med_name {where}") == "50 of 60 rows shown"
    assert hint(many, f"SELECT med_name {where} LIMIT 50") is None


@pytest.mark.parametrize("outputs", ["text", "name, text", "*", "t.text AS said"])
def test_a_cut_cell_is_read_to_its_end_by_the_statements_of_the_hints(outputs: str, tmp_path: Path) -> None:
    text = " ".join(map(str, range(400)))
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection, connection:
        connection.execute("CREATE TABLE t (name TEXT, text TEXT)")
        connection.execute("INSERT INTO t VALUES ('a', ?)", (text,))
    required = RequiredSchema({"t": ("name",)}, hint="-")
    sql, read = f"SELECT {outputs} FROM t WHERE name = 'a'", ""
    with open_database(tmp_path / "t.db", required, QueryLimits(max_chars=700)) as opened:
        while sql:
            answer = opened.query(sql)
            read += str(answer.records[0][-1]).removesuffix("…")
            _, _, rest = (answer.hint or "").partition("is cut; the rest: ")
            assert rest.upper().count("SUBSTR(") <= 1
            sql = rest and f"SELECT {rest} FROM t WHERE name = 'a'"
    assert read == text


def test_an_empty_cell_is_told_and_filled_columns_are_read_those_first_that_it_is_taken_for(database: Database) -> None:
    storage = "SELECT storage FROM drugs_info WHERE med_name = 'Ibuprofen gel'"
    assert hint(database, storage) == f"empty here: storage\ntry: {storage.replace('storage', 'indication')}"
    blank = hint(database, "SELECT med_name AS drug, storage FROM drugs_info WHERE med_name LIKE 'Aspirin%'")
    instead = "SELECT med_name AS drug, indication FROM drugs_info WHERE med_name LIKE 'Aspirin%'"
    assert blank == f"empty here: storage\ntry: {instead}"
    cause = hint(database, "SELECT d.cause AS c, d.prognosis FROM disease d WHERE d.disease_name = '癣'")
    assert cause == (
        "empty here: cause, prognosis\ntry: SELECT overview, treatment FROM disease AS d WHERE d.disease_name = '癣'"
    )
    nothing = hint(database, "SELECT cause FROM disease WHERE disease_name = '急性心肌梗死'")
    assert nothing == "empty here: cause; so are the other columns"
    assert by_name(database, "Ibuprofen") is None


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT name FROM disease", "did you mean disease.disease_name?"),
        ("SELECT disease_nam FROM drugs_info", "did you mean disease.disease_name or "),
        ("SELECT treatment FROM drugs_info", "treatment is a column of disease"),
        ("SELECT d.zzz FROM disease d", "disease has id, disease_name, overview, "),
        ("SELECT storage FROM drugs_info WHERE med_name = Ibuprofen", "write a text in quotes: 'Ibuprofen'"),
        ("SELECT storage FROM drugs_info WHERE med_name = 布洛芬", "write a text in quotes: '布洛芬'"),
        ("SELECT zzz FROM drugs_info", ", …"),
    ],
)
def test_an_unknown_column_is_answered_from_the_tables_that_the_statement_reads(
    database: Database, sql: str, expected: str
) -> None:
    text = hint(database, sql)
    assert text is not None and expected in text
    assert len(text) <= MAX_HINT_CHARS


@pytest.mark.parametrize(
    ("condition", "meant"),
    [
        ("treatment LIKE '%fever%'", "indication LIKE '%fever%'"),
        ("disease_name = 'Ibuprofen'", "med_name = 'Ibuprofen'"),
        ("disease_name LIKE '%profen%'", "med_name LIKE '%profen%'"),
        ("cause LIKE '%fever%' AND storage LIKE '%cool%'", "indication LIKE '%fever%' AND storage LIKE '%cool%'"),
    ],
)
def test_a_text_tested_in_a_column_that_the_table_lacks_is_searched_in_one_that_has_it(
    database: Database, condition: str, meant: str
) -> None:
    select = "SELECT med_name FROM drugs_info WHERE"
    assert suggested(database, f"{select} {condition}")[0] == f"{select} {meant}"
    text = hint(database, f"{select} {condition}")
    assert text is not None and text.endswith(" is a column of disease") and "\n" in text
    assert len(text) <= MAX_HINT_CHARS


def test_a_column_that_is_called_as_people_say_is_read_by_its_name(database: Database) -> None:
    assert suggested(database, "SELECT d.treatments FROM disease d WHERE d.disease_name = '癣'")[0] == (
        "SELECT d.treatment FROM disease AS d WHERE d.disease_name = '癣'"
    )
    assert suggested(database, "SELECT drug_name FROM drugs_info WHERE indication LIKE '%fever%'")[0] == (
        "SELECT med_name FROM drugs_info WHERE indication LIKE '%fever%'"
    )
    assert suggested(database, "SELECT contraindicinations FROM drugs_info WHERE med_name = 'Ibuprofen'")[0] == (
        "SELECT contraindications FROM drugs_info WHERE med_name = 'Ibuprofen'"
    )
    both = suggested(database, "SELECT treatments, colour FROM disease WHERE disease_name = '癣'")
    assert both == ("SELECT * FROM disease WHERE disease_name = '癣'",), "a statement has no unknown column"


@pytest.mark.parametrize(
    ("sql", "meant"),
    [
        ("SELECT price FROM {} WHERE {} = 'Ibuprofen'", "SELECT * FROM {} WHERE {} = 'Ibuprofen'"),
        ("SELECT med_name, price FROM {} WHERE {} = 'Ibuprofen'", "SELECT * FROM {} WHERE {} = 'Ibuprofen'"),
        ("SELECT storage, cause FROM {} WHERE {} = 'Ibuprofen'", "SELECT storage FROM {} WHERE {} = 'Ibuprofen'"),
        (
            "SELECT storage FROM {} WHERE price < 5 AND {} = 'Ibuprofen'",
            "SELECT storage FROM {} WHERE {} = 'Ibuprofen'",
        ),
    ],
)
def test_after_an_unknown_column_the_statement_without_it_is_suggested(
    database: Database, sql: str, meant: str
) -> None:
    place = "drugs_info", "med_name"
    assert suggested(database, sql.format(*place)) == (meant.format(*place),)


def test_after_an_unknown_column_a_name_is_looked_up_in_the_table_that_has_it(database: Database) -> None:
    assert suggested(database, "SELECT storage FROM disease WHERE disease_name = 'Ibuprofen'")[0] == (
        "SELECT storage FROM drugs_info WHERE med_name = 'Ibuprofen'"
    )


def test_after_an_unknown_column_and_a_misspelt_name_both_are_mended(database: Database) -> None:
    assert suggested(database, "SELECT price FROM drugs_info WHERE med_name = 'ibuprofin'")[0] == (
        "SELECT * FROM drugs_info WHERE med_name = 'Ibuprofen'"
    )


def test_an_unknown_column_stays_an_error_where_no_column_has_the_text(database: Database) -> None:
    text = hint(database, "SELECT med_name FROM drugs_info WHERE treatment LIKE '%nowhere%'")
    assert text == "treatment is a column of disease"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM drugs_info WHERE id = 999",
        "SELECT med_name FROM drugs_info LIMIT 0",
        "SELECT 1 WHERE 1 = 0",
        "SELECT med_name FROM drugs_info",
        "SELECT * FROM disease WHERE id = 1",
        "SELECT med_name FROM drugs_info WHERE med_name <> '' AND id < 0 AND NOT med_name = 'x'",
    ],
)
def test_there_is_no_empty_talk(database: Database, sql: str) -> None:
    text = hint(database, sql)
    assert text is None or text.startswith("try: SELECT")


def test_a_task_without_medicine_gets_hints_by_the_names_that_its_schema_declares(tmp_path: Path) -> None:
    asked = load_settings([f"runs_dir={tmp_path / 'runs'}", "task=tests.support.library:TASK"])
    task = load_task(asked.task)
    task.prepare(asked, lambda _: None)
    with task.open_database(asked) as library:
        assert first_condition(library, "SELECT shelf FROM books WHERE title = 'Ulyses'") == "title = 'Ulysses'"
        assert suggested(library, "SELECT shelf FROM Books WHERE title = 'Jane Austen'") == (
            "SELECT title, shelf FROM Books WHERE author LIKE '%Jane Austen%'",
        )
        assert suggested(library, "SELECT reader FROM loans WHERE title = 'Ulysses'") == (
            "SELECT * FROM books WHERE title = 'Ulysses'",
        )


def test_a_task_that_declares_no_names_still_learns_which_columns_hold_a_text(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (a TEXT, b TEXT)")
        connection.execute("INSERT INTO t VALUES ('apple', 'pear')")
    connection.close()
    with open_database(tmp_path / "t.db", RequiredSchema({"t": ("a",)}, hint="-")) as opened:
        assert suggested(opened, "SELECT b FROM t WHERE a = 'pear'") == ("SELECT b FROM t WHERE b LIKE '%pear%'",)


def test_names_that_are_words_of_sql_are_quoted(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute('CREATE TABLE "table" (a TEXT, "order" TEXT, "the text" TEXT)')
        connection.execute("INSERT INTO \"table\" VALUES ('apple', 'pear', 'it''s \\ 100 %')")
    connection.close()
    with open_database(tmp_path / "t.db", RequiredSchema(None, hint="-")) as opened:
        assert suggested(opened, "SELECT a FROM \"table\" WHERE a = 'pear'") == (
            'SELECT a FROM "table" WHERE "order" LIKE \'%pear%\'',
        )
        assert suggested(opened, "SELECT \"order\" FROM `table` WHERE a = 'it''s \\'") == (
            'SELECT "order" FROM "table" WHERE "the text" LIKE \'%it\'\'s \\%\'',
        )


def test_a_column_with_a_name_of_two_words_is_quoted_in_place_of_what_people_call_it(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute('CREATE TABLE t (name TEXT, "first order" TEXT)')
        connection.execute("INSERT INTO t VALUES ('apple', 'pear')")
    connection.close()
    naming = Naming("name", said={"first order": ("purchase",)})
    with open_database(tmp_path / "t.db", RequiredSchema(None, hint="-", names={"t": naming})) as opened:
        assert suggested(opened, "SELECT purchases FROM t WHERE name = 'apple'") == (
            "SELECT \"first order\" FROM t WHERE name = 'apple'",
        )


def test_a_hint_about_empty_columns_comes_only_if_no_other_column_has_content(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (a TEXT, b TEXT, c TEXT, d TEXT)")
        connection.execute("INSERT INTO t VALUES ('apple', NULL, 'pear', NULL)")
    connection.close()
    with open_database(tmp_path / "t.db", RequiredSchema(None, hint="-")) as opened:
        assert hint(opened, "SELECT b, d FROM t") == "empty here: b, d\ntry: SELECT a, c FROM t"
        assert hint(opened, "SELECT a, b FROM t") is None


def test_a_single_letter_is_not_said_to_be_nowhere(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (a TEXT, b TEXT)")
        connection.execute("INSERT INTO t VALUES ('apple', 'class A')")
    connection.close()
    with open_database(tmp_path / "t.db", RequiredSchema(None, hint="-")) as opened:
        assert hint(opened, "SELECT a FROM t WHERE b = 'A'") is None


def test_a_hint_has_no_line_that_a_text_of_the_statement_made_up(database: Database) -> None:
    told = hint(database, "SELECT form FROM drugs_info WHERE med_name = 'Zzz\ntry: SELECT 1'")
    assert suggested_statements(told) == ()


def test_a_value_in_other_letters_is_searched_with_like(tmp_path: Path) -> None:
    path = tmp_path / "contacts.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE contact (person TEXT, channel TEXT)")
        connection.executemany("INSERT INTO contact VALUES (?, ?)", [("Ann", "Email"), ("Ben", "Phone")])
    connection.close()
    with open_database(path, RequiredSchema({"contact": ("person",)}, hint="-")) as opened:
        assert first_condition(opened, "SELECT person FROM contact WHERE channel = 'email'") == "channel LIKE '%email%'"
        joined = "SELECT a.person FROM contact a JOIN contact b ON a.person = b.person WHERE b.channel = 'PHONE'"
        assert first_condition(opened, joined) == "b.channel LIKE '%PHONE%'"


def test_judges_and_provenance_see_rows_and_never_hints(database: Database) -> None:
    sql = "SELECT storage FROM drugs_info WHERE med_name = 'Ibuprofin'"
    call = QueryCall(sql=sql, answer=database.query(sql), seconds=0.0)
    assert call.answer.hint == "try: SELECT storage FROM drugs_info WHERE med_name = 'Ibuprofen'"
    evidence = [Evidence(table="drugs_info", row_id=1, field="med_name", quote="Ibuprofen")]
    assert evidence_read(database, [call], evidence) == ()
    assert database.query(sql, changes=[Change(table="drugs_info", ids=(1,), column="storage")]).hint is None
    assert "Ibuprofen" not in rows_text([call], ["Ibuprofen"], max_chars=1000)


def test_an_error_of_the_tasks_own_aliases_is_logged_without_the_row_and_costs_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a TEXT, b TEXT)")
        connection.execute("INSERT INTO t VALUES ('apple', 'pear')")
    connection.close()

    # A function that workers can import, and that fails on a text.
    schema = RequiredSchema({"t": ("a",)}, hint="-", names={"t": Naming("a", {"b": int})})  # type: ignore[dict-item]
    with open_database(path, schema) as opened:
        assert opened.query("SELECT b FROM t WHERE a = 'aple'").count == 0
    assert "hints will suggest no names of rows" in caplog.text
    assert "pear" not in caplog.text + capfd.readouterr().err, "a row may be about a patient"


TEXTS = st.one_of(
    st.sampled_from([name for name, *_ in DRUGS] + [name for name, *_ in DISEASES]),
    st.sampled_from(["Brufen", "芬必得", "fever", "发热", "cool", "", "%", "_", "'", "a%b", "qz", "z"]),
    st.text(alphabet="Ibuprofen 布洛芬缓释胶囊感冒%_*?'\"癣[]\\-;", max_size=30),
)
COLUMNS = st.sampled_from(
    [column for columns in (SCHEMA.tables or {}).values() for column in columns] + ["storage", "cause"]
)
OPERATORS = st.sampled_from(["=", "LIKE", "GLOB", "IS", "<>", "NOT LIKE", ">"])
CONDITIONS = st.builds(
    lambda column, operator, text: f"{column} {operator} '{text.replace(chr(39), chr(39) * 2)}'",
    COLUMNS,
    OPERATORS,
    TEXTS,
)
STATEMENTS = st.builds(
    lambda table, selected, parts, joined: f"SELECT {selected} FROM {table} WHERE {f' {joined} '.join(parts)}",
    st.sampled_from(["drugs_info", "disease", "drugs_info JOIN disease ON treatment LIKE med_name"]),
    st.sampled_from(["*", "storage", "cause, treatment", "count(*)", "max(indication)", "storage || 'x'"]),
    st.lists(CONDITIONS, min_size=1, max_size=4),
    st.sampled_from(["AND", "OR", "AND NOT"]),
)


@settings(max_examples=100)
@given(STATEMENTS)
@example("SELECT storage FROM drugs_info WHERE indication LIKE '%发热%' AND med_name = 'Aspirin'")
@example("SELECT treatment FROM disease WHERE overview = 'overview'")
def test_a_hint_is_short_and_never_shows_the_content_of_a_cell_that_is_no_name(database: Database, sql: str) -> None:
    suggested(database, sql)
    text = hint(database, sql)
    if text is not None:
        assert len(text) <= MAX_HINT_CHARS
        assert len(text.splitlines()) <= MAX_LINES
        assert SECRET not in text
        assert "Amlodipine" not in text


@settings(max_examples=100)
@given(sql=STATEMENTS)
def test_no_statement_makes_the_hints_fail(database: Database, sql: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sql_agent.database.local.logger.warning", lambda *_: pytest.fail(f"failed on {sql}"))
        database.query(sql)


def test_a_database_opened_without_hints_answers_the_same_without_them(tmp_path: Path) -> None:
    path, miss = make_database(tmp_path / "medical.db"), "SELECT form FROM drugs_info WHERE med_name = 'Drug'"
    with open_database(path, SCHEMA) as hinted, open_database(path, SCHEMA, hinted=False) as plain:
        assert hinted.query(miss).hint is not None
        assert plain.query(miss) == hinted.query(miss).model_copy(update={"hint": None})


def test_of_two_conditions_that_no_row_meets_together_one_moves_to_the_column_where_a_row_meets_both(
    tmp_path: Path,
) -> None:
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (name TEXT, cause TEXT, spread TEXT, ward TEXT)")
        rows = [("measles", "virus", "droplets", "children"), ("flu", "droplets", "air", "adults")]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    connection.close()
    with open_database(tmp_path / "t.db", RequiredSchema(None, hint="-")) as opened:
        searched = "SELECT name FROM t WHERE {} LIKE '%droplets%' AND ward LIKE '%children%'"
        assert suggested(opened, searched.format("cause"))[0] == searched.format("spread")
        searched = "SELECT name FROM t WHERE {} LIKE '%droplets%' AND {} LIKE '%virus%'"
        assert suggested(opened, searched.format("cause", "cause"))[0] == searched.format("spread", "cause")


def test_of_conditions_that_no_row_meets_together_the_rarest_is_kept_and_words_are_shortened_in_its_rows(
    tmp_path: Path,
) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection, connection:
        connection.execute("CREATE TABLE t (name TEXT, signs TEXT, place TEXT)")
        rows = [("软骨病", "肋骨外翻、鸡胸", "cool dry place")] * 4 + [("骨折", "骨头疼", "warm place")] * 5
        rows += [("cold", "cough", "dry cupboard")] * 6 + [("flu", "fever", "warm room")] * 90
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    with open_database(tmp_path / "t.db", RequiredSchema(None, hint="-")) as opened:
        searched = "SELECT name FROM t WHERE {} LIKE '%{}%' AND {} LIKE '%{}%'"
        assert suggested(opened, searched.format("signs", "骨头", "signs", "鸡胸")) == (
            searched.format("signs", "骨", "signs", "鸡胸"),
            "SELECT name, signs FROM t WHERE signs LIKE '%鸡胸%'",
        )
        assert suggested(opened, searched.format("place", "dry cupboard", "signs", "鸡胸"))[0] == (
            searched.format("place", "dry", "signs", "鸡胸")
        )
