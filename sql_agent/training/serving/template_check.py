"""Find the form of a model's tool calls in a process of its own, because a process with torch must not be forked."""

from __future__ import annotations

import json
import subprocess
import sys

from sql_agent.config.sections import AgentSettings
from sql_agent.errors import ModelError

# transformers imports in two seconds where it finds no torch, else in eight.
_START = f"import sys; sys.modules['torch'] = None; from {__name__} import main; main()"


def tool_format_of(model: str, agent: AgentSettings) -> str:
    """Return the form in which `model` writes tool calls. Raises ModelError as `load_tokenizer` does."""
    command = [sys.executable, "-c", _START, model, agent.model_dump_json()]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    try:
        found: dict[str, str] = json.loads(result.stdout.splitlines()[-1])  # libraries print too
    except (ValueError, IndexError):
        reason = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
        raise ModelError(f"cannot load the tokenizer of {model!r}: {reason}", hint="check its files") from None
    if "message" in found:
        raise ModelError(found["message"], hint=found["hint"])
    return found["tool_format"]


def main() -> None:
    """Print the form of the model in the first argument as JSON, or an error's message and hint."""
    from sql_agent.training.serving.tokenizer import load_encoder  # noqa: PLC0415  only in the other process

    try:
        encoder, _ = load_encoder(sys.argv[1], AgentSettings.model_validate_json(sys.argv[2]))
        found = {"tool_format": encoder.tool_format}
    except ModelError as error:
        found = {"message": error.message, "hint": error.hint or ""}
    print(json.dumps(found))
