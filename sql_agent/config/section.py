"""Define what all sections of the settings share: strict checks, texts that are read, and the kinds of numbers."""

from __future__ import annotations

from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(gt=0, le=1_000_000)]  # of what one process holds at once
Seconds = Annotated[float, Field(gt=0.0, le=1e6)]  # eleven days, which every clock and time-out can hold
PositiveNumber = Annotated[float, Field(gt=0.0)]
NotNegativeNumber = Annotated[float, Field(ge=0.0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
TopP = Annotated[float, Field(gt=0.0, le=1.0)]


class Section(BaseModel):
    """Base of all settings: unknown keys, infinities and NaN are errors, and every type can be given as text."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _read_text(cls, value: Any, info: ValidationInfo) -> Any:
        """Parse texts that pydantic does not: `none` or an empty text as None, and `0,10` or `[0,10]` as a tuple."""
        if not isinstance(value, str) or info.field_name is None:
            return value
        annotation = cls.model_fields[info.field_name].annotation
        if NoneType in get_args(annotation) and value.strip().lower() in {"", "none"}:
            return None
        if get_origin(annotation) is tuple:
            items = value.strip("[] ")
            return items.split(",") if items else ()
        return value
