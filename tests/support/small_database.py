"""A small medical database for tests, with a table and a view beside it that no statement may read."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sql_agent.tasks.medical.tables import create_table_sql

CANARY = "canary-5d1f"
FORMS = ("tablet", "capsule", "syrup", None)


def make_database(path: Path, *, rows: int = 200) -> Path:
    """Write `rows` drugs and as many diseases to `path`, and CANARY into the table `secrets`."""
    with sqlite3.connect(path) as connection:
        for table in ("drugs_info", "disease"):
            connection.execute(create_table_sql(table))
        connection.executemany(
            "INSERT INTO drugs_info (id, med_name, form, indication, component, status) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (
                    number,
                    f"Drug {number}",
                    FORMS[number % 4],
                    f"Disease {number % 50}; 头痛",
                    f"salt {number % 7}",
                    "OTC",
                )
                for number in range(1, rows + 1)
            ],
        )
        connection.executemany(
            "INSERT INTO disease (id, disease_name, overview, treatment) VALUES (?, ?, ?, ?)",
            [
                (number, f"Disease {number}", f"overview of {number}\nsecond line", f"Drug {number}; rest")
                for number in range(1, rows + 1)
            ],
        )
        connection.execute("INSERT INTO drugs_info (id, med_name, form) VALUES (9001, '布洛芬', '片剂')")
        connection.execute("CREATE TABLE secrets (id INTEGER PRIMARY KEY, med_name TEXT, password TEXT)")
        connection.execute("INSERT INTO secrets VALUES (1, ?, ?)", (CANARY, CANARY))
        connection.execute("CREATE VIEW secrets_view AS SELECT * FROM secrets")
        connection.execute("CREATE INDEX drug_name ON drugs_info (med_name)")
        connection.execute("ANALYZE")
    connection.close()
    return path
