"""A server that a judge `llm` can grade with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.judge_server import Server, serving
from tests.support.llm_judge import GOOD


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        server.default = GOOD
        yield server


@pytest.fixture
def other_server() -> Iterator[Server]:
    with serving() as server:
        server.default = GOOD
        yield server
