"""Test the repair of statements that read a column of a table that they do not join."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sql_agent.database import Database, RequiredSchema, open_database
from tests.database.test_hints import hint, suggested

_TABLES = """
CREATE TABLE city (city_id INTEGER PRIMARY KEY, city TEXT);
CREATE TABLE address (address_id INTEGER PRIMARY KEY, street TEXT, city_id INT REFERENCES city);
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, address_id INT REFERENCES address (address_id));
CREATE TABLE product (product_id INTEGER PRIMARY KEY, name TEXT, price REAL);
CREATE TABLE bought (
    customer_id INT REFERENCES customer (id), product_id INT REFERENCES product (product_id), pieces INT
);
CREATE TABLE `order` (number INTEGER PRIMARY KEY, customer_id INT REFERENCES customer (id));
CREATE TABLE flight (flight TEXT, origin INT REFERENCES city (city_id), goal INT REFERENCES city (city_id));
INSERT INTO `order` VALUES (17, 2);
INSERT INTO flight VALUES ('BA 1', 1, 2);
INSERT INTO city VALUES (1, 'Bath'), (2, 'York');
INSERT INTO address VALUES (1, 'Main Street', 1), (2, 'High Street', 2);
INSERT INTO customer VALUES (1, 'Ann', 1), (2, 'Bob', 2);
INSERT INTO product VALUES (1, 'kettle', 20.0), (2, 'lamp', 30.0);
INSERT INTO bought VALUES (1, 1, 2), (2, 2, 1);
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path: Path = tmp_path_factory.mktemp("joins") / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_TABLES)
    with open_database(path, RequiredSchema(None, hint="-")) as opened:
        yield opened


@pytest.mark.parametrize(
    ("sql", "repaired"),
    [
        (
            "SELECT name, street FROM customer",
            "SELECT name, address.street FROM customer JOIN address ON customer.address_id = address.address_id",
        ),
        (  # over a table that the question does not name; `name` would be ambiguous
            "SELECT name FROM customer WHERE price > 25",
            "SELECT customer.name FROM customer JOIN bought ON customer.id = bought.customer_id JOIN product ON "
            "bought.product_id = product.product_id WHERE product.price > 25",
        ),
        (
            "SELECT c.name FROM customer AS c WHERE city = 'Bath'",
            "SELECT c.name FROM customer AS c JOIN address ON c.address_id = address.address_id JOIN city ON "
            "address.city_id = city.city_id WHERE city.city = 'Bath'",
        ),
        (  # the wrong one of two joined tables
            "SELECT T2.name FROM customer AS T1 JOIN address AS T2 ON T1.address_id = T2.address_id",
            "SELECT T1.name FROM customer AS T1 JOIN address AS T2 ON T1.address_id = T2.address_id",
        ),
        (  # joined on a column that one of them lacks
            "SELECT T1.name, T2.city FROM customer AS T1 JOIN city AS T2 ON T1.city_id = T2.city_id",
            "SELECT T1.name, T2.city FROM customer AS T1 JOIN address ON T1.address_id = address.address_id JOIN "
            "city AS T2 ON address.city_id = T2.city_id",
        ),
        ("SELECT pieces FROM customer", "SELECT bought.pieces FROM bought"),
        (
            'SELECT number, name FROM "order"',
            'SELECT number, customer.name FROM "order" JOIN customer ON "order".customer_id = customer.id',
        ),
        (
            "SELECT name FROM product WHERE price > (SELECT MIN(pieces) FROM customer WHERE name = 'Ann')",
            "SELECT name FROM product WHERE price > (SELECT MIN(bought.pieces) FROM customer JOIN bought ON "
            "customer.id = bought.customer_id WHERE name = 'Ann')",
        ),
    ],
)
def test_a_column_of_a_table_that_is_not_joined_is_read_by_joining_it(shop: Database, sql: str, repaired: str) -> None:
    assert suggested(shop, sql)[0] == repaired
    assert shop.query(repaired).count


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT colour FROM customer",
        "SELECT name, colour FROM customer WHERE city = 'Bath'",
        "SELECT name FROM customer WHERE city = 'Paris'",  # finds no row
        "SELECT * FROM customer WHERE city = 'Bath'",
        "SELECT name FROM (SELECT name FROM customer) AS c WHERE city = 'Bath'",
        "SELECT city WHERE city = 'Bath'",
        "SELECT T1.name FROM customer AS T1 JOIN city AS T2 ON T1.city_id = T2.city_id AND T2.city = 'Bath'",
        "SELECT T1.name FROM customer AS T1 LEFT JOIN city AS T2 ON T1.city_id = T2.city_id",
        "SELECT T1.name FROM customer AS T1 JOIN customer AS T2 ON T1.id = T2.id WHERE T1.city = T2.city",
        "SELECT flight, city FROM flight",  # of which of its two cities?
    ],
)
def test_only_a_statement_that_runs_and_finds_rows_is_suggested(shop: Database, sql: str) -> None:
    text = hint(shop, sql)
    assert text is not None and "JOIN" not in text
