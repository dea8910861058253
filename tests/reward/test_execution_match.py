"""Two statements give the same result or not, each case worked out by hand on the data of tests/support/orchard.py."""

from __future__ import annotations

import sqlite3

import pytest

from sql_agent.reward.execution_match import cell_overlap, comparable, is_ordered, results_match
from tests.support.orchard import FERRIES, ORCHARD


def matches(script: str, gold: str, found: str) -> bool:
    connection = sqlite3.connect(":memory:")
    connection.executescript(script)
    rows = [connection.execute(comparable(sql)).fetchall() for sql in (gold, found)]
    connection.close()
    return results_match(*rows, ordered=is_ordered(gold))


@pytest.mark.parametrize(
    ("gold", "found", "same"),
    [
        # Rows in any order, each as often as it occurs: kilos are 10, 12.5, 10, 7 and 7.
        ("SELECT kilos FROM harvest", "SELECT kilos FROM harvest ORDER BY kilos", True),
        ("SELECT kilos FROM harvest", "SELECT kilos FROM harvest GROUP BY kilos", False),
        ("SELECT kilos FROM harvest WHERE kilos = 10", "SELECT kilos FROM harvest WHERE kilos = 7", False),
        ("SELECT 10 UNION ALL SELECT 10 UNION ALL SELECT 7", "SELECT 10 UNION ALL SELECT 7 UNION ALL SELECT 7", False),
        # Columns in any order, but the same order in all rows.
        ("SELECT kind, row FROM tree", "SELECT row, kind FROM tree", True),
        ("SELECT kind FROM tree", "SELECT kind, row FROM tree", False),
        ("SELECT 1, 2 UNION ALL SELECT 3, 4", "SELECT 2, 1 UNION ALL SELECT 3, 4", False),
        ("SELECT 1, 1, 2 UNION ALL SELECT 1, 2, 1", "SELECT 1, 2, 1 UNION ALL SELECT 2, 1, 1", True),
        ("SELECT 1, 1, 2 UNION ALL SELECT 1, 2, 1", "SELECT 1, 2, 1 UNION ALL SELECT 1, 2, 1", False),
        # NULL equals NULL and neither 0 nor an empty text: the height of the quince.
        ("SELECT height FROM tree WHERE kind = 'quince'", "SELECT NULL", True),
        ("SELECT height FROM tree WHERE kind = 'quince'", "SELECT 0", False),
        ("SELECT buyer FROM harvest", "SELECT ifnull(buyer, '') FROM harvest", False),
        # A whole number equals the same float, no text equals a number, and numbers are compared exactly.
        ("SELECT height FROM tree WHERE kind = 'pear'", "SELECT 3", True),
        ("SELECT height FROM tree WHERE kind = 'pear'", "SELECT '3.0'", False),
        ("SELECT 0.1 + 0.2", "SELECT 0.3", False),
        # Results without rows are equal, whatever their columns; one without rows is not equal to one row of NULL.
        ("SELECT kind FROM tree WHERE row = 9", "SELECT tree_id, kind FROM tree WHERE row = 8", True),
        ("SELECT kind FROM tree WHERE row = 9", "SELECT max(kind) FROM tree WHERE row = 9", False),
        # DISTINCT is removed from both, in an aggregate too: there are 4 trees of 3 kinds.
        ("SELECT DISTINCT kind FROM tree", "SELECT kind FROM tree", True),
        ("SELECT count(DISTINCT kind) FROM tree", "SELECT count(kind) FROM tree", True),
        ("SELECT DISTINCT kind FROM tree", "SELECT kind FROM tree GROUP BY kind", False),
        ("SELECT 'distinct' FROM tree", "SELECT '' FROM tree", False),
        # Comparisons split as in some data sets.
        ("SELECT kind FROM tree WHERE height > = 3", "SELECT kind FROM tree WHERE height >= 3", True),
    ],
)
def test_a_result_in_an_orchard(gold: str, found: str, same: bool) -> None:
    assert matches(ORCHARD, gold, found) is same


@pytest.mark.parametrize(
    ("gold", "found", "same"),
    [
        # Auk has 80 seats, Tern and Skua have 120: the order counts where the gold statement orders, ties included.
        ("SELECT name FROM ferry ORDER BY seats", "SELECT name FROM ferry ORDER BY seats, id", True),
        ("SELECT name FROM ferry ORDER BY seats", "SELECT name FROM ferry ORDER BY seats DESC", False),
        ("SELECT name FROM ferry order  by seats", "SELECT name FROM ferry ORDER BY id", False),
        ("SELECT name FROM ferry", "SELECT name FROM ferry ORDER BY seats DESC", True),
        ("SELECT name, seats FROM ferry ORDER BY seats", "SELECT seats, name FROM ferry ORDER BY seats, id", True),
        # An ORDER BY anywhere counts, though it only finds the largest here.
        ("SELECT name FROM ferry ORDER BY seats LIMIT 1", "SELECT name FROM ferry WHERE seats = 80", True),
    ],
)
def test_the_order_of_ferries(gold: str, found: str, same: bool) -> None:
    assert matches(FERRIES, gold, found) is same


def test_partial_credit_is_the_share_of_cells_that_are_right() -> None:
    gold = [("pear", 1), ("apple", 2)]
    assert cell_overlap(gold, gold) == 1.0
    assert cell_overlap(gold, [("pear",), ("apple",)]) == pytest.approx(2 * 2 / (4 + 2))
    assert cell_overlap(gold, [("plum", 9)]) == cell_overlap(gold, []) == cell_overlap([], []) == 0.0


def test_many_columns_alike_are_compared_at_once() -> None:
    rows = [tuple(int(column == row) for column in range(60)) for row in range(60)]
    assert results_match(rows, [row[::-1] for row in rows], ordered=False)
    assert not results_match(rows, [*rows[:-1], (1,) * 60], ordered=False)
