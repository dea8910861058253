"""What is wrong with a file is its place and the reason, in words that name no class of ours."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from sql_agent.system.messages import first_problem, printable


class _Level(BaseModel):
    name: str


class _Rubric(BaseModel):
    levels: list[_Level]

    @field_validator("levels")
    @classmethod
    def _has_some(cls, levels: list[_Level]) -> list[_Level]:
        if not levels:
            raise ValueError("there is none")
        return levels


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "levels: Field required"),
        ({"levels": [{"name": "good"}, {"name": 5}]}, "levels.1.name: Input should be a valid string"),
        ({"levels": []}, "levels: there is none"),
        ([], "not an object"),
        ({"levels": ["good"]}, "levels.0: not an object"),
    ],
)
def test_the_first_problem_is_its_place_and_its_reason(given: Any, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Rubric.model_validate(given)
    assert first_problem(caught.value) == said
    assert first_problem(caught.value, {"levels": "grades"}) == said.replace("levels", "grades")


def test_a_text_that_is_no_json_has_no_place() -> None:
    with pytest.raises(ValidationError) as caught:
        _Rubric.model_validate_json('{"levels": ')
    assert first_problem(caught.value).startswith("Invalid JSON: EOF while parsing")


def test_control_and_format_characters_do_not_reach_a_terminal() -> None:
    assert printable("a\x9bb\u202ec\nd\u200be\x1b") == "a b c\nd e "
