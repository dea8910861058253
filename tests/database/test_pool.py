"""Databases stay open between questions, few enough at once, and none is closed under a rollout that uses it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from sql_agent.database import Database, DatabasePool, open_database
from sql_agent.errors import DatabaseFileError
from sql_agent.tasks.medical.tables import SCHEMA
from tests.support.small_database import make_database

COUNT = "SELECT COUNT(*) FROM disease"


class Opener:
    """Opens databases of as many rows as their names say, and remembers which it opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.opened: list[str | None] = []
        for rows in range(1, 7):
            make_database(folder / f"{rows}.db", rows=rows)

    def __call__(self, name: str | None) -> Database:
        self.opened.append(name)
        return open_database(self._folder / f"{name or 1}.db", SCHEMA)


@pytest.fixture
def opener(tmp_path: Path) -> Opener:
    return Opener(tmp_path)


def rows(pool: DatabasePool, name: str | None) -> object:
    with pool.of(name) as database:
        return database.query(COUNT).records[0][0]


def test_one_is_opened_once_and_again_only_after_others_took_its_place(opener: Opener) -> None:
    with DatabasePool(opener, keep=2) as pool:
        assert [rows(pool, name) for name in (None, "2", None, "2", "3", "2", None)] == [1, 2, 1, 2, 3, 2, 1]
    assert opener.opened == [None, "2", "3", None], "the one that was used longest ago made room"


def test_one_that_is_in_use_is_not_closed_however_many_others_are_opened(opener: Opener) -> None:
    with DatabasePool(opener, keep=1) as pool, ExitStack() as stack:
        used = [stack.enter_context(pool.of(name)) for name in ("2", "3", "2")]
        assert rows(pool, "4") == 4
        assert [database.query(COUNT).records[0][0] for database in used] == [2, 3, 2]
        assert used[0] is used[2]


def test_one_that_is_forgotten_is_opened_anew_and_closed_when_nobody_uses_it(opener: Opener) -> None:
    with DatabasePool(opener) as pool:
        with pool.of("2") as first, ExitStack() as stack:
            stack.enter_context(pool.of("2"))
            pool.forget(first)
            with pool.of("2") as second:
                assert second is not first
                pool.forget(first)
            stack.close()
            assert first.query(COUNT).records == second.query(COUNT).records == ((2,),)
        assert "closed" in str(first.query(COUNT).error)
        assert rows(pool, "2") == 2
        pool.forget(second)
        assert "closed" in str(second.query(COUNT).error)
    assert opener.opened == ["2", "2"]


@pytest.mark.slow
def test_many_threads_get_the_right_one_each_time(opener: Opener) -> None:
    start = threading.Barrier(8)

    def ask(thread: int) -> bool:
        start.wait()
        names = [str(1 + (thread + i) % 6) for i in range(10)]
        return [rows(pool, name) for name in names] == [int(name) for name in names]

    with DatabasePool(opener, keep=2) as pool, ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(8)))


def test_one_that_cannot_be_opened_says_so_and_leaves_the_others(opener: Opener) -> None:
    with DatabasePool(opener) as pool:
        with pytest.raises(DatabaseFileError, match="no database at"):
            pool.check(["2", "nowhere"])
        assert rows(pool, "2") == 2
