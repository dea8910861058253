"""Fine-tune the model of a verl run before GRPO, on one GPU: python -m sql_agent.training.verl.sft RUN_FOLDER

This is a separate process, whose end frees the GPU's memory. It writes its progress to RUN_FOLDER/sft.jsonl and not to
stdout, because libraries print to stdout. It writes the path of the fine-tuned model to RUN_FOLDER/sft.json. With
`train.validate_untrained` it first asks the untrained model the validation questions.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from pathlib import Path

import pandas as pd
import torch

from sql_agent.agent.rollout import ask_all
from sql_agent.config.settings import Settings
from sql_agent.database import DatabasePool
from sql_agent.errors import SqlAgentError
from sql_agent.runs.console import Ui
from sql_agent.runs.run_folder import SFT
from sql_agent.schemas import Question, RolloutRecord
from sql_agent.tasks.task import Task, load_task
from sql_agent.training.policy.sft import Compute, copy_losses, fine_tuned_model
from sql_agent.training.serving.model_endpoint import model_endpoint
from sql_agent.training.verl.config import trains_on_npu
from sql_agent.training.verl.interprocess import UNTRAINED_RECORDS, write_sft_result
from sql_agent.training.verl.memory import card_of, plan_memory


def main(run: Path) -> int:
    """Fine-tune with the settings of RUN/config.json; return the exit code, which is 2 for a SqlAgentError."""

    def write_progress(step: int, steps: int, loss: float) -> None:
        with (run / SFT).open("a", encoding="utf-8") as progress:
            progress.write(json.dumps({"step": step, "steps": steps, "loss": loss}) + "\n")

    settings = Settings(**json.loads((run / "config.json").read_text(encoding="utf-8")))
    try:
        task = load_task(settings.task)
        with task.databases(settings) as databases:
            questions = task.questions(settings, "train")
            compute = _compute(settings)  # plans with the GPU's free memory, so before vLLM uses some of it
            if settings.train.validate_untrained:
                _ask_untrained(run, settings, task, databases)
            model = fine_tuned_model(
                settings, questions, task, databases, compute=compute, progress=write_progress, say=print
            )
    except SqlAgentError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    copy_losses(model, run / SFT)
    write_sft_result(run, str(Path(model).resolve()))
    return 0


def _ask_untrained(run: Path, settings: Settings, task: Task, databases: DatabasePool) -> None:
    """Ask the model before fine-tuning the validation questions, and append each record to RUN/untrained.jsonl."""
    rows = pd.read_parquet(run / "data" / "val.parquet")["extra_info"]
    asked = [("", Question.model_validate_json(row["question"])) for row in rows]
    judge, runner = task.judge(settings, alone=True), settings.runner
    with (
        (run / UNTRAINED_RECORDS).open("a", encoding="utf-8") as sink,
        model_endpoint(settings, databases, Ui(), card_of(settings).vllm_share) as model,
    ):

        def write(_: str, record: RolloutRecord) -> None:
            sink.write(record.model_dump_json() + "\n")
            sink.flush()

        at_once = runner.concurrency * runner.n_runners
        asyncio.run(ask_all(asked, task, model, databases, judge, settings, concurrency=at_once, on_record=write))


def _compute(settings: Settings) -> Compute:
    device, lora_rank = _device(settings), settings.verl.lora_rank
    if device != "cuda":
        return Compute(device, bf16=device != "cpu", lora_rank=lora_rank)
    plan = plan_memory(settings)
    # torch keeps freed memory up to this limit. On an 80 GB GPU it held 47.4 GB, 40 of them in use, where 46 were
    # estimated.
    torch.cuda.set_per_process_memory_fraction(plan.card.torch_share)
    return Compute(
        device,
        bf16=True,
        lora_rank=lora_rank,
        micro_tokens=plan.sft_tokens,
        checkpointing=plan.sft_checkpointing,
    )


def _device(settings: Settings) -> str:
    """Return torch's device: "npu" with --device npu, else "cuda" if there is a GPU, else "cpu"."""
    if trains_on_npu(settings):
        importlib.import_module("torch_npu")  # registers the device with torch
        return "npu"
    return "cuda" if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
