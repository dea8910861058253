"""A small share of the random statements that benchmarks/fuzz_guard.py sends; 100,000 a dialect are sent by hand."""

from __future__ import annotations

import pytest

from sql_agent.database import Database
from sql_agent.database.answers import KINDS
from tests.support.fuzzed_statements import fuzzed
from tests.support.small_database import CANARY


@pytest.mark.parametrize("engine", ["file_database", "server_database"])
def test_no_random_statement_shows_the_other_table(engine: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(engine)
    for sql in fuzzed(200, seed=1):
        answer = database.query(sql)
        assert answer.error is None or answer.error.kind in KINDS, sql
        assert CANARY not in str(answer), sql
