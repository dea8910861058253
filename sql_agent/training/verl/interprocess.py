"""Pass the dataset, the bearer token and the fine-tuned model's path to verl's processes, and times back from them.

This module imports neither torch nor agent-lightning, because every process of verl imports this module.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from sql_agent.config.settings import Settings
from sql_agent.errors import SqlAgentError
from sql_agent.schemas import Question
from sql_agent.system.files import atomic_write

if TYPE_CHECKING:
    from sql_agent.rollouts.scheduler import Mode

RUN_VARIABLE = "SQLAGENT_RUN_TOKEN"  # without the prefix of settings, because the token is not a setting
SFT_RESULT = "sft.json"
UNTRAINED_RECORDS = "untrained.jsonl"
START_VARIABLE = "SQLAGENT_START"  # the path of the file to which `end_of_start_part` writes
# The settings of the section `agent` that the policy's endpoints need.
TEMPLATE_SETTINGS = ("tool_format", "chat_template", "thought_tokens")
_VLLM_VARIABLE = "VLLM_API_KEY"  # read by vLLM's server in each replica
_POLL_S = 0.2


def write_dataset(questions: Sequence[Question], path: Path, mode: Mode) -> None:
    """Write `questions` to the parquet file `path`, as verl reads it; each row has one complete Question as JSON."""
    rows = [
        {
            "data_source": "sql_agent",
            "prompt": [{"role": "user", "content": question.question}],
            "reward_model": {"style": "rule", "ground_truth": question.answer},
            "extra_info": {"index": index, "mode": mode, "question": question.model_dump_json()},
        }
        for index, question in enumerate(questions)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(path)


def typed(value: Any) -> Any:
    """Convert a string from the command line into a number, boolean, list or None, also in the values of a dict."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(value, value))
    except ValueError:
        return value


def token_environment(token: str) -> dict[str, str]:
    """Return environment variables that give a run's bearer token to verl's processes and to vLLM's server."""
    return {RUN_VARIABLE: token, _VLLM_VARIABLE: token}


def run_token() -> str:
    return os.environ[RUN_VARIABLE]


def work_on_run(work: Callable[[Path, Settings], None]) -> None:
    """Call `work` with the run's folder, which is this process's argument, and with the settings of its config.json.

    A SqlAgentError ends the process with exit code 2.
    """
    run = Path(sys.argv[1])
    try:
        work(run, Settings(**json.loads((run / "config.json").read_text("utf-8"))))
    except SqlAgentError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def write_sft_result(run: Path, model: str) -> None:
    """Write the path of the fine-tuned `model` to RUN/sft.json, atomically, because verl waits for this file."""
    with atomic_write(run / SFT_RESULT) as unfinished:
        unfinished.write_text(json.dumps({"model": model}), "utf-8")


def wait_for_sft_result(path: Path) -> str:
    """Wait until `write_sft_result` has written the file `path`, and return the path of the fine-tuned model.

    There is no time limit, because the main process ends this process when supervised fine-tuning fails.
    """
    while not path.exists():
        time.sleep(_POLL_S)
    model: str = json.loads(path.read_text("utf-8"))["model"]
    return model


def end_of_start_part(name: str) -> None:
    """Append the time at which the part `name` of the start has ended to the file that START_VARIABLE names, if any."""
    if path := os.environ.get(START_VARIABLE):  # benchmarks/verl_step_time.py starts verl without it
        with Path(path).open("a", encoding="utf-8") as parts:
            parts.write(json.dumps({"part": name, "time": time.time()}) + "\n")
