"""Two invented databases in the layout of Spider, with questions in its format: an orchard's harvests, and ferries.

Small enough to work out every result by hand; what a naive comparison gets wrong is in them: duplicates, NULL, ties in
an order, whole numbers written as floats, columns in another order, empty results.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

ORCHARD = """
CREATE TABLE "Tree" ("tree_id" INTEGER PRIMARY KEY, "kind" TEXT, "row" INTEGER, "height" REAL);
CREATE TABLE "Harvest" ("tree_id" INTEGER REFERENCES "Tree" ("tree_id"), "year" INTEGER, "kilos" REAL, "buyer" TEXT);
CREATE TABLE "Note" ("text" TEXT);
INSERT INTO "Tree" VALUES (1, 'pear', 1, 3.0), (2, 'apple', 1, 2.5), (3, 'apple', 2, 4.0), (4, 'quince', 2, NULL);
INSERT INTO "Harvest" VALUES
    (1, 2020, 10.0, 'Ada'), (1, 2021, 12.5, NULL), (2, 2020, 10.0, 'Ada'), (3, 2021, 7.0, 'Bo'), (3, 2021, 7.0, 'Bo');
"""
FERRIES = """
CREATE TABLE "port" ("name" TEXT PRIMARY KEY, "country" TEXT);
CREATE TABLE "ferry" ("id" INTEGER PRIMARY KEY, "name" TEXT, "home" TEXT, "seats" INTEGER,
    FOREIGN KEY ("home") REFERENCES "port" ("name"));
INSERT INTO "port" VALUES ('Sund', 'Norland'), ('Vik', 'Norland'), ('Kapp', 'Osland');
INSERT INTO "ferry" VALUES (1, 'Tern', 'Sund', 120), (2, 'Auk', 'Vik', 80), (3, 'Skua', 'Vik', 120);
"""
QUESTIONS = [
    ("orchard", "How many trees are there?", "SELECT count(*) FROM tree"),
    ("orchard", "Which kinds of trees grow in row 1?", "SELECT kind FROM tree WHERE row = 1"),
    ("orchard", "What are the kinds of trees?", "SELECT DISTINCT kind FROM tree"),
    ("orchard", "How many kilos did each kind of tree give?",
     "SELECT T1.kind, sum(T2.kilos) FROM tree AS T1 JOIN harvest AS T2 ON T1.tree_id = T2.tree_id GROUP BY T1.kind"),
    ("orchard", "Which kinds gave no harvest?",
     "SELECT kind FROM tree WHERE tree_id NOT IN (SELECT tree_id FROM harvest)"),
    ("orchard", "Who bought before 2000?", "SELECT buyer FROM harvest WHERE year < 2000"),
    ("ferries", "List the names of the ferries from the fewest seats to the most.",
     "SELECT name FROM ferry ORDER BY seats ASC"),
    ("ferries", "How many ferries are at home in each country?",
     "SELECT T2.country, count(*) FROM ferry AS T1 JOIN port AS T2 ON T1.home = T2.name GROUP BY T2.country"),
    ("ferries", "Which ports have no ferry?", "SELECT name FROM port EXCEPT SELECT home FROM ferry"),
    ("ferries", "What is the name of the ferry called \"Auk\"?", 'SELECT name FROM ferry WHERE name = "Auk"'),
]  # fmt: skip


def write_spider_folder(folder: Path) -> Path:
    """Write databases and questions into `folder` as Spider has them, without tables.json; returns `folder`."""
    for name, script in (("orchard", ORCHARD), ("ferries", FERRIES)):
        path = folder / "database" / name / f"{name}.sqlite"
        path.parent.mkdir(parents=True)
        connection = sqlite3.connect(path)
        connection.executescript(script)
        connection.close()
    rows = [{"db_id": database, "question": text, "query": query} for database, text, query in QUESTIONS]
    (folder / "train_spider.json").write_text(json.dumps(rows), encoding="utf-8")
    return folder
