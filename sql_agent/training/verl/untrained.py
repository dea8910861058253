"""Ask the untrained model of a verl run the validation questions.

    python -m sql_agent.training.verl.untrained RUN_FOLDER

This is a separate process, whose end frees the GPU's memory: supervised fine-tuning in the same process hung once
vLLM had ended (an H100, 2026-11-27). Each record is appended to RUN_FOLDER/untrained.jsonl.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pandas as pd

from sql_agent.agent.rollout import ask_all
from sql_agent.config.settings import Settings
from sql_agent.runs.console import Ui
from sql_agent.schemas import Question, RolloutRecord
from sql_agent.tasks.task import load_task
from sql_agent.training.serving.model_endpoint import model_endpoint
from sql_agent.training.verl.interprocess import UNTRAINED_RECORDS, work_on_run
from sql_agent.training.verl.memory import plan_memory, rollout_length


def ask_untrained(run: Path, settings: Settings) -> None:
    rows = pd.read_parquet(run / "data" / "val.parquet")["extra_info"]
    asked = [("", Question.model_validate_json(row["question"])) for row in rows]
    at_once = settings.runner.concurrency * settings.runner.n_runners
    task = load_task(settings.task)
    judge, plan = task.judge(settings, alone=True), plan_memory(settings)
    # As in the run, because vLLM cannot measure the memory of a GPU while another run starts there.
    memory = {"gpu_memory_utilization": plan.vllm / plan.card.total, "kv_cache_memory_bytes": plan.cache}
    memory["max_model_len"] = rollout_length(settings)  # the cache need not hold a model's whole context
    with (
        task.databases(settings) as databases,
        (run / UNTRAINED_RECORDS).open("a", encoding="utf-8") as sink,
        model_endpoint(settings, databases, Ui(), memory) as model,
    ):

        def write(_: str, record: RolloutRecord) -> None:
            sink.write(record.model_dump_json() + "\n")
            sink.flush()

        asyncio.run(ask_all(asked, task, model, databases, judge, settings, concurrency=at_once, on_record=write))


if __name__ == "__main__":
    work_on_run(ask_untrained)
