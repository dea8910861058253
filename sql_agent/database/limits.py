"""How long one statement may run, and how much of its answer the model sees."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """Caps on one query: seconds it may run, records returned, and characters of all their cells together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    deadline_s: float = Field(default=2.0, gt=0)
    max_rows: int = Field(default=50, ge=1)
    max_chars: int = Field(default=4000, ge=100)
