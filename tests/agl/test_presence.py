"""An algorithm ends although its store does not answer any more."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sql_agent.agl import presence


async def test_a_store_whose_host_is_gone_does_not_keep_a_run_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_LAST_S", 0.05)

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    store: Any = SimpleNamespace(update_worker=never)
    announcer = presence.Announcer(store, presence.Announcement(session="s", run="r", resources_id="x"))
    await asyncio.wait_for(announcer.close("failed"), timeout=10)
