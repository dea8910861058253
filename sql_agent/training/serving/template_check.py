"""Find the form of a model's tool calls in a child process, so that this process need not import torch."""

from __future__ import annotations

import json
import subprocess
import sys

from sql_agent.config.sections import AgentSettings
from sql_agent.errors import ModelError

# The import of transformers takes two seconds if torch is not found, else eight.
_START = f"import sys; sys.modules['torch'] = None; from {__name__} import main; main()"


def tool_format_of(model: str, agent: AgentSettings) -> str:
    """Return the form in which `model` writes tool calls, such as "hermes". Raises the errors of `load_tokenizer`."""
    command = [sys.executable, "-c", _START, model, agent.model_dump_json()]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    try:
        found: dict[str, str] = json.loads(result.stdout.splitlines()[-1])  # earlier lines come from libraries
    except (ValueError, IndexError):
        reason = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
        raise ModelError(
            f"cannot load the tokenizer of {model!r}: {reason}",
            hint="check the model's files, or give --model another Hugging Face folder or id",
        ) from None
    if "message" in found:
        raise ModelError(found["message"], hint=found["hint"])
    return found["tool_format"]


def main() -> None:
    """Print the form of tool calls of the model that the first command-line argument names, or an error, as JSON."""
    from sql_agent.training.serving.tokenizer import load_encoder  # noqa: PLC0415  only in the other process

    try:
        encoder, _ = load_encoder(sys.argv[1], AgentSettings.model_validate_json(sys.argv[2]))
        found = {"tool_format": encoder.tool_format}
    except ModelError as error:
        found = {"message": error.message, "hint": error.hint or ""}
    print(json.dumps(found))
