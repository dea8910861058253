"""Read what a worker sends; nothing of it is trusted, because a worker runs the statements of others."""

from __future__ import annotations

from typing import Any

from sql_agent.schemas import QueryAnswer


def read_reply(message: Any) -> tuple[QueryAnswer, bool, bool]:
    """Return the answer, whether the worker ends now, and whether a hint follows. Raises ValueError if it is none."""
    match message:
        case {"answer": dict(answer), "last": bool(last), "more": bool(more)}:
            return QueryAnswer.model_validate(answer), last, more
    raise ValueError("not a reply")


def read_hint(message: Any) -> tuple[str | None, str | None]:
    """Return a hint and what went wrong when it was written. Raises ValueError if it is none."""
    match message:
        case {"hint": str() | None as hint, "trouble": str() | None as trouble}:
            return hint, trouble
    raise ValueError("not a hint")
