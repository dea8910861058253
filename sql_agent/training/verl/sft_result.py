"""Pass the fine-tuned model to verl, which starts beside supervised fine-tuning, through RUN_FOLDER/sft.json."""

from __future__ import annotations

import json
import time
from pathlib import Path

from sql_agent.system.files import atomic_write

SFT_RESULT = "sft.json"
_POLL_S = 0.2


def write_result(run: Path, model: str) -> None:
    """Write the path of the fine-tuned `model` into the folder of a run, at once, because verl waits for the file."""
    with atomic_write(run / SFT_RESULT) as unfinished:
        unfinished.write_text(json.dumps({"model": model}), encoding="utf-8")


def wait_for_model(result: Path) -> str:
    """Return the path of the fine-tuned model when the file `result` is there.

    It waits without limit, because the main process ends this one when the fine-tuning fails.
    """
    while not result.exists():
        time.sleep(_POLL_S)
    model: str = json.loads(result.read_text(encoding="utf-8"))["model"]
    return model
