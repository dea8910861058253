"""Put data into a prompt so that it stays data, with all that requests have in common at the start.

A server that keeps the prefixes of prompts (vLLM and most providers do) reads the common part once. So the constant
text comes first, then question and reference, which all rollouts of a group share, then what one rollout wrote.

Question and reference are JSON strings: their end cannot be written inside them, which is as safe as a random number
and stays the same from request to request. They come from the user's own file, which training cannot change.
Statements, rows and answer stand in fences with a random number, because a policy does change them: it can learn
whatever text passes for a mark that it could know.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from importlib.resources import files

from sql_agent.schemas import Lang, Question

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def render(template: str, values: Mapping[str, str]) -> str:
    """Return `template` with {fence}, {fence_end} and the placeholders of `values` replaced.

    One pass: a placeholder inside the data stays what it is, and an unknown one in the template too. The fences carry a
    fresh random number, so nothing that was written before can close one.
    """
    number = secrets.token_hex(4)  # short, since it stands where nothing is shared; a guess hits once in 4 billion
    known = {**values, "fence": f"<<<{number}", "fence_end": f"{number}>>>"}
    return _PLACEHOLDER.sub(lambda match: known.get(match.group(1), match.group(0)), template)


def quoted(text: str) -> str:
    """Return `text` as a JSON string on one line."""
    return json.dumps(text, ensure_ascii=False)


def reference_text(question: Question) -> str:
    """Return the reference answer as a JSON string, with a note where some of its facts are enough."""
    if question.enough is None:
        return quoted(question.answer)
    notes = {
        "en": f" (any {question.enough} of these facts are a full answer)",
        "zh": f"（其中任意{question.enough}项即为完整答案）",
    }
    return quoted(question.answer) + notes[question.lang]


def prompt_text(name: str, lang: Lang) -> str:
    """Return the prompt file `name`.`lang`.txt of this package."""
    return files("sql_agent.reward.judges").joinpath("prompts", f"{name}.{lang}.txt").read_text(encoding="utf-8")
