"""The questions about a described database: what they are, that they can be answered, and that splits share no row."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from sql_agent.config.settings import load_settings
from sql_agent.questions.question_check import check_questions, count_quotes, problem_of, read_example
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.reward.judges.items import Reader
from sql_agent.schemas import Question
from sql_agent.tasks.described.catalog import Catalog
from sql_agent.tasks.described.described_task import described_task
from sql_agent.tasks.described.description import read_description
from sql_agent.tasks.described.generate import make_question_files
from sql_agent.tasks.described.guess_description import guess_description
from sql_agent.tasks.described.statement import COUNT, Comparison, Join, Output, Statement
from sql_agent.tasks.described.table_rows import read_database
from tests.tasks.described.conftest import Described


def test_every_reference_follows_from_the_rows_of_its_statement(described: Described) -> None:
    questions = [question for of_split in described.made.values() for question in of_split]
    with described.task.databases(load_settings()) as databases:
        checked = check_questions(questions, databases, described.task.words, FactsJudge(described.task.words))
        quotes = count_quotes(questions, databases)
    assert problem_of(checked, "facts") is None
    assert [each.question.id for each in checked if each.failure or each.earned != 1.0] == []
    assert quotes.found == sum(len(question.evidence) for question in questions)


def test_splits_share_no_row_and_no_text(described: Described) -> None:
    rows = [
        {(item.table, item.row_id) for question in questions for item in question.evidence}
        for questions in described.made.values()
    ]
    texts = [question.question for questions in described.made.values() for question in questions]
    assert [a & b for n, a in enumerate(rows) for b in rows[:n]] == [set()] * 3
    assert len(texts) == len(set(texts))


def test_the_shop_allows_every_type(shop: Described) -> None:
    types = Counter(question.task_type for question in shop.made["train"])
    assert set(types) == {
        *("lookup", "columns", "search", "range", "two_conditions", "negation", "any_of", "count", "group"),
        *("superlative", "comparison", "yes_no", "linked", "linked_rows", "unanswerable", "listing", "aggregate"),
        *("per_group", "groups", "best", "average", "sets", "unlinked"),
    }
    yes = Counter(question.answer for question in shop.made["train"] if question.task_type == "yes_no")
    assert set(yes) == {"yes", "no"}
    refused = {question.answer for question in shop.made["train"] if question.task_type == "unanswerable"}
    assert refused == {"The database does not hold this information."}


def test_wordings_are_filled(described: Described) -> None:
    texts = [question.question for questions in described.made.values() for question in questions]
    assert [text for text in texts if "{" in text or "None" in text] == []
    assert any("哪些" in text for text in texts) == (described.description.lang == "zh")


def test_a_corrected_label_is_asked_without_other_corrections(shop: Described) -> None:
    text = shop.file.read_text(encoding="utf-8")
    assert 'label = "category"' in text and "the category" not in text
    corrected = shop.file.with_name("corrected.toml")
    corrected.write_text(text.replace('label = "category"', 'label = "range of goods"'), encoding="utf-8")
    task = described_task(corrected)
    made = make_question_files(
        read_description(corrected),
        task.database_source(load_settings()),
        task,
        corrected.with_name("corrected"),
        per_type=20,
    )
    texts = [question.question for questions in made.values() for question in questions]
    assert any("the range of goods of" in text for text in texts)
    assert [text for text in texts if "category of" in text] == []


def test_one_value_is_asked_for_in_the_singular_and_chinese_conditions_are_sentences(described: Described) -> None:
    questions = [question for of_split in described.made.values() for question in of_split]
    pairs = [question.question for question in questions if question.task_type == "columns"]
    assert pairs
    assert [text for text in pairs if "categories" in text or "statuses" in text or "countries" in text] == []
    assert [
        q.question for q in questions if "是的" in q.question or "里，的" in q.question or "而且是" in q.question
    ] == []


def test_a_statement_quotes_the_names_that_need_it(shop: Described) -> None:
    names = read_database(shop.path)
    where = (Comparison("full_name", "=", "Ann O'Hara", "customers"), Comparison("order_date", ">=", "2020-01-01"))
    joined = Statement(
        "order", (Output("order_no"),), where=where, joins=(Join("customers", "customer_id", "customer_id"),)
    )
    assert joined.sql(names) == (
        "SELECT `order`.order_no FROM `order` JOIN customers ON `order`.customer_id = customers.customer_id "
        "WHERE customers.full_name = 'Ann O''Hara' AND `order`.order_date >= '2020-01-01'"
    )
    grouped = Statement("products", (Output("category"),), group_by=Output("category"), order_by=COUNT, limit=1)
    assert grouped.sql(names) == "SELECT category FROM products GROUP BY category ORDER BY COUNT(*) LIMIT 1"


def test_a_quoted_table_is_read_whole_in_the_evaluation_of_a_judge(shop: Described) -> None:
    question = Question(id="1", question="?", answer="open", sql="SELECT status FROM `order` WHERE order_no = 1")
    with shop.task.open_database(load_settings()) as database:
        example = read_example(question, database, Reader(shop.task.words["en"]), shop.task.schema.names)
    assert [(call.sql, call.answer.status) for call in example.tables.calls] == [("SELECT * FROM `order`", "ok")]


def test_no_question_repeats_a_terminal_code_of_a_cell(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "toys.db")) as connection, connection:
        connection.execute("CREATE TABLE toys (name TEXT, colour TEXT)")
        names = [f"Toy {number}" + "\x1b[31m" * (number % 2) for number in range(60)]
        connection.executemany("INSERT INTO toys VALUES (?, 'red')", ((name,) for name in names))
    rows = read_database(tmp_path / "toys.db")
    catalog = Catalog(guess_description(rows, "toys.db", None, lambda _: None), rows)
    assert [row.name for row in catalog.named("toys")] == names[::2]
