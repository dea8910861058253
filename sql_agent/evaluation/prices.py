"""Look up what a model's tokens cost."""

from __future__ import annotations

from sql_agent.evaluation.measures import Price


def price_of(model: str) -> Price | None:
    """Return the price of `model`, by the name that its endpoint gives it, in litellm's list; None where that has none.

    The list is the one that was installed with litellm.
    """
    import litellm  # noqa: PLC0415  slow to import, and only models that others serve have a price

    known = litellm.model_cost.get(model)
    if not known or "input_cost_per_token" not in known or "output_cost_per_token" not in known:
        return None
    return Price(float(known["input_cost_per_token"]), float(known["output_cost_per_token"]))
