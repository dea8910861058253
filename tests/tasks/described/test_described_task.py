"""A task from a file: what the model sees, what commands do with it, and what a stranger's file may not do."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sql_agent.__main__ import main
from sql_agent.agent.demonstrations import query_thoughts
from sql_agent.config.settings import Source, load_settings, merge
from sql_agent.database import open_database
from sql_agent.database.provenance import evidence_read
from sql_agent.errors import ConfigError
from sql_agent.schemas import Evidence, QueryCall, Question
from sql_agent.tasks.described.described_task import described_task, with_named_values
from sql_agent.tasks.described.description import as_toml
from sql_agent.tasks.described.guess_description import guess_description
from sql_agent.tasks.described.table_rows import read_database
from sql_agent.tasks.task import load_task
from tests.tasks.described.conftest import Described
from tests.tasks.described.databases import make_shop


def test_the_prompt_describes_tables_columns_and_links(shop: Described) -> None:
    with shop.task.open_database(load_settings()) as database:
        prompt = shop.task.instructions("en", database, load_settings())
    assert "order(order_no, customer_id, order_date, status " in prompt
    assert "materials a,b, is_discontinued 0|1" in prompt
    assert "order.customer_id = customers.customer_id" in prompt


def test_a_question_is_shown_with_the_values_that_it_names(shop: Described) -> None:
    with shop.task.open_database(load_settings()) as database:
        asked = [
            Question(id="q", question=text, answer="?", lang="en")
            for text in ("What is the weight of blue ketle?", "What is the weight?")
        ]
        shown = [shop.task.question_text(question, database) for question in asked]
    assert shown == [
        f"{asked[0].question}\nValues: products.productName = 'Blue kettle'",
        f"{asked[1].question}\nValues: none",
    ]


def test_a_value_that_is_only_a_piece_of_a_word_of_asking_is_shown_and_a_word_of_asking_is_not(tmp_path: Path) -> None:
    path = tmp_path / "paints.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE paints (name TEXT, colour TEXT)")
        rows = [(f"Paint {number}", ("red", "last", "green")[number % 3]) for number in range(30)]
        connection.executemany("INSERT INTO paints VALUES (?, ?)", rows)
    file = tmp_path / "paints.toml"
    file.write_text(as_toml(guess_description(read_database(path), path.name, "en", lambda _: None)), encoding="utf-8")
    task = described_task(file)
    with task.open_database(load_settings()) as database:
        asked = Question(id="q", question="Which paints are red, since last year?", answer="?", lang="en")
        assert task.question_text(asked, database).endswith("Values: paints.colour LIKE 'red'")


def test_an_everyday_word_inside_the_name_of_a_row_is_no_word(shop: Described) -> None:
    description = shop.description.model_copy(update={"said": {"steel": ("kettle",)}})
    with shop.task.open_database(load_settings()) as database:
        asked = [
            Question(id="q", question=text, answer="?", lang="en") for text in ("Who has a kettle?", "Any blue kettle?")
        ]
        shown = [with_named_values(description)(question, database).partition("Values: ")[2] for question in asked]
    assert "'%steel%'" in shown[0]
    assert shown[1] == "products.productName = 'Blue kettle'"


def test_the_thought_of_a_demonstration_has_the_label_of_the_column(shop: Described) -> None:
    task, table = shop.task, shop.description.tables["order"]
    with task.open_database(load_settings()) as database:
        (thought,) = query_thoughts(['SELECT order_date FROM "order" WHERE order_no = 1'], "en", task, database)
    assert thought == f"The question is about {table.columns['order_date'].label}, so I read order.order_date."


def test_hints_and_evidence_work_without_a_column_called_id(shop: Described) -> None:
    with open_database(shop.path, shop.task.schema) as database:
        missed = database.query("SELECT price FROM products WHERE productName = 'Blue ketle'")
        assert "'Blue kettle'" in (missed.hint or "")
        sql = "SELECT price FROM products WHERE productName = 'Blue kettle'"
        call = QueryCall(sql=sql, answer=database.query(sql), seconds=0.0)
        price = str(call.answer.records[0][0])
        evidence = Evidence(table="products", row_id=1, field="price", quote=price)
        assert evidence_read(database, [call], [evidence]) == (evidence,)
        other = evidence.model_copy(update={"row_id": 2})
        assert evidence_read(database, [call], [other]) == ()


def test_from_a_database_to_checked_questions_without_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database, file = make_shop(tmp_path / "shop.db"), str(tmp_path / "shop.toml")
    assert main(["init", str(database), "--out", file]) == 0
    assert "`order_items` has no column that names a row" in capsys.readouterr().out
    assert main(["init", str(database), "--out", file]) == 2
    assert "shop.toml exists already" in capsys.readouterr().err
    assert main(["data", "questions", "--task", file, "--per-type", "5"]) == 0
    files = [str(tmp_path / "shop_questions" / f"{split}.parquet") for split in ("train", "val")]
    capsys.readouterr()
    assert main(["data", "check", *files, "--task", file]) == 0
    assert "of type group" in capsys.readouterr().out
    assert main(["data", "check", *files]) == 2
    assert "--db is missing" in capsys.readouterr().err


def test_a_description_of_a_stranger_is_data(tmp_path: Path) -> None:
    merge([Source("config.json", {"task": "shop.toml"}, trusted=False)])
    with pytest.raises(ConfigError, match="runs code"):
        merge([Source("config.json", {"task": "os:path"}, trusted=False)])
    with pytest.raises(ConfigError, match=r"cannot read antigravity:NAME\.toml"):
        load_task("antigravity:NAME.toml")
    file = tmp_path / "remote.toml"
    table = '[tables.a]\nlabel = "a"\nplural = "as"\n[tables.a.columns.b]\nkind = "text"\nlabel = "b"\n'
    file.write_text(f'database = "mysql://host/shop"\n{table}', encoding="utf-8")
    with pytest.raises(ConfigError, match="database is a URL"):
        load_task(str(file))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('kind = "list"', "a list needs a separator"),
        ('kind = "colour"', "Input should be"),
        ('kind = "text"\nask = ["What is it?"]', "ask: a wording needs {name}"),
        ('kind = "text"\ncode = "x"', "Extra inputs are not permitted"),
    ],
)
def test_a_wrong_description_is_refused_with_its_place(tmp_path: Path, wrong: str, said: str) -> None:
    file = tmp_path / "wrong.toml"
    table = f'[tables.a]\nlabel = "a"\nplural = "as"\n[tables.a.columns.b]\nlabel = {json.dumps("b")}\n'
    file.write_text(f"{table}{wrong}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"wrong\.toml does not describe a database") as raised:
        load_task(str(file))
    assert said in raised.value.message


def test_plain_questions_have_a_folder_of_their_own(shop: Described) -> None:
    folders = {
        style: shop.task.default_questions(load_settings([f"data.style={style}"]), "train").parent.name
        for style in ("mixed", "template")
    }
    assert folders == {"mixed": "shop_questions", "template": "shop_questions_template"}
