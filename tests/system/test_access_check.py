"""A server with a token passes on the requests that show it, and those for its open paths."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from sql_agent.system.servers import AccessCheck, bearer

APP = PlainTextResponse("served")


async def status(app: Any, path: str, headers: dict[str, str]) -> int:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
        return (await client.get(path, headers=headers)).status_code


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1))
async def test_any_other_token_is_refused(token: str) -> None:
    app = AccessCheck(APP, "the right one", open_paths={"/health"})
    assert await status(app, "/data", bearer(token)) == 401
    assert await status(app, "/data", {"Authorization": token}) == 401
    assert await status(app, "/data", bearer("the right one")) == 200
    assert await status(app, "/health", bearer(token)) == 200


@pytest.mark.parametrize("path", ["/", "/health/", "//health", "/healthy", "/HEALTH", "/health/../data", "/%68ealth/x"])
async def test_only_the_open_path_itself_is_open(path: str) -> None:
    app = AccessCheck(APP, "t", open_paths={"/health"})
    assert await status(app, path, {}) == 401
    assert await status(app, path, {"Authorization": "Basic t"}) == 401


async def test_without_a_token_all_are_served() -> None:
    assert await status(AccessCheck(APP, None), "/data", {}) == 200


def test_a_web_socket_needs_the_token_too() -> None:
    async def never(*_: object) -> None:
        raise AssertionError("it was passed on")

    with pytest.raises(WebSocketDisconnect), TestClient(AccessCheck(never, "t")).websocket_connect("/ws"):
        pass
