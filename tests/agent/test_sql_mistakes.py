"""Test the mistakes that demonstrations repair."""

from __future__ import annotations

import pytest

from sql_agent.agent import sql_mistakes
from sql_agent.database.schema import Schema


@pytest.mark.parametrize(
    ("sql", "broken"),
    [
        (
            "SELECT T2.a FROM x AS T1 JOIN y AS T2 ON T1.i = T2.i WHERE t2.b = 'T2.mp3'",
            "SELECT a FROM x AS T1 WHERE b = 'T2.mp3'",
        ),
        (
            "SELECT y.a FROM x INNER JOIN y ON x.i = y.i WHERE n = 'x JOIN z ON i = k'",
            "SELECT a FROM x WHERE n = 'x JOIN z ON i = k'",
        ),
        ("SELECT y.a FROM x LEFT JOIN y ON x.i = y.i", None),
        ("SELECT y.a FROM x JOIN y ON x.i = y.i AND x.k = y.k", None),
        ("SELECT a FROM x", None),
    ],
)
def test_a_join_is_forgotten_with_the_qualifiers_of_its_columns_only(sql: str, broken: str | None) -> None:
    assert sql_mistakes.without_join(sql, Schema(()), 0) == broken
