"""A price is known for the names that litellm lists, without a network."""

from __future__ import annotations

from sql_agent.evaluation.measures import price_of
from sql_agent.schemas import Usage


def test_a_listed_model_has_a_price_a_token_and_another_has_none() -> None:
    price = price_of("gpt-4o-mini")
    assert price is not None
    assert 0 < price.prompt < price.completion < 1e-4
    assert price.cost(Usage(prompt_tokens=1_000_000)) == price.prompt * 1_000_000
    assert price_of("my-own-model") is None
