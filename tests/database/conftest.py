"""The small database on a MariaDB server, one for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sql_agent.database import Database, open_database
from sql_agent.schemas import QueryLimits
from sql_agent.tasks.medical.tables import SCHEMA
from tests.support.mariadb import copied_to_server
from tests.support.small_database import make_database

SERVER_DEADLINE_S = 1.0
LIMITS = QueryLimits(deadline_s=SERVER_DEADLINE_S, max_rows=1000, max_chars=1_000_000)


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a user with all rights on the server."""
    with copied_to_server(make_database(tmp_path_factory.mktemp("server") / "medical.db")) as url:
        yield url


@pytest.fixture(scope="session")
def server_database(server_url: str) -> Iterator[Database]:
    with open_database(server_url, SCHEMA, LIMITS) as database:
        yield database


@pytest.fixture(scope="session")
def file_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """The same in a SQLite file, queried within the same limits."""
    path = make_database(tmp_path_factory.mktemp("file") / "medical.db")
    with open_database(path, SCHEMA, LIMITS) as database:
        yield database
