"""Fine-tune the model of a verl run before GRPO, on one GPU: python -m sql_agent.training.verl.sft RUN_FOLDER

This is a separate process, whose end frees the GPU's memory. It writes its progress to RUN_FOLDER/sft.jsonl and not to
stdout, because libraries print to stdout. It writes the path of the fine-tuned model to RUN_FOLDER/sft.json.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import torch

from sql_agent.config.settings import Settings
from sql_agent.runs.run_folder import SFT
from sql_agent.system.resources import usable_cores
from sql_agent.tasks.task import load_task
from sql_agent.training.policy.sft import Compute, copy_losses, fine_tuned_model
from sql_agent.training.verl.config import trains_on_npu
from sql_agent.training.verl.interprocess import work_on_run, write_sft_result
from sql_agent.training.verl.memory import plan_memory


def fine_tune(run: Path, settings: Settings) -> None:
    def write_progress(step: int, steps: int, loss: float) -> None:
        with (run / SFT).open("a", encoding="utf-8") as progress:
            progress.write(json.dumps({"step": step, "steps": steps, "loss": loss}) + "\n")

    torch.set_num_threads(usable_cores())  # a fork of `warm_python` has one thread
    task = load_task(settings.task)
    with task.databases(settings) as databases:
        questions = task.questions(settings, "train")
        model = fine_tuned_model(
            settings, questions, task, databases, compute=_compute(settings), progress=write_progress, say=print
        )
    copy_losses(model, run / SFT)
    write_sft_result(run, str(Path(model).resolve()))


def _compute(settings: Settings) -> Compute:
    device, lora_rank = _device(settings), settings.verl.lora_rank
    if device != "cuda":
        return Compute(device, bf16=device != "cpu", lora_rank=lora_rank)
    plan = plan_memory(settings)
    # torch keeps freed memory up to this limit. On an 80 GB GPU it held 47.4 GB, 40 of them in use, where 46 were
    # estimated.
    torch.cuda.set_per_process_memory_fraction(plan.card.torch_share)
    return Compute(
        device, bf16=True, lora_rank=lora_rank, micro_tokens=plan.sft_tokens, checkpointing=plan.sft_checkpointing
    )


def _device(settings: Settings) -> str:
    """Return torch's device: "npu" with --device npu, else "cuda" if there is a GPU, else "cpu"."""
    if trains_on_npu(settings):
        importlib.import_module("torch_npu")  # registers the device with torch
        return "npu"
    return "cuda" if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    work_on_run(fine_tune)
