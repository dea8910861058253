"""Stands in for verl's trainer: the same options file, the same requests at the rollout_server, the same files, no GPU.

Run as `python -m tests.support.fake_verl OPTIONS.json`. The policy is a script behind the real serving code: it
queries, reads and answers, after FAKE_LATENCY_S seconds. FAKE_VERL names a mishap to play: crash, slow (its start
and its updates take seconds), lose (the policy goes away), engine (vLLM fails while it takes the weights), memory (the
second update runs out of memory unless verl.config gives the tokens of a pass).
FAKE_POLICIES names policies that are served elsewhere, by `python -m tests.support.fake_verl --serve MODEL`, which
prints its address.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp
import pyarrow.parquet as pq

from sql_agent.system.servers import bearer
from sql_agent.training.serving.server import Generation, Sampling, ServerThread, build_app
from sql_agent.training.verl.interprocess import end_of_start_part, run_token, wait_for_sft_result

# What Ray, verl and vLLM print of an engine that fails while verl sends it the weights.
ENGINE_FAILED = """\
\x1b[36m(vLLMHttpServer pid=1)\x1b[0m (Worker pid=3) ERROR 11-23 15:46:55 [multiproc_executor.py:1000] TypeError: no
\x1b[36m(vLLMHttpServer pid=1)\x1b[0m (EngineCore pid=2) ERROR 11-23 15:46:55 [core.py:1449] RuntimeError: \
Worker failed with error 'no', please check the stack trace above for the root cause
\x1b[36m(SimpleStorageUnit pid=4)\x1b[0m 2026-11-23 15:46:56,107 - INFO - 532 requests"""
# What verl's launcher prints when the GPU has no more memory.
OUT_OF_MEMORY = f"""\
ray.exceptions.RayTaskError(OutOfMemoryError): \x1b[36mray::TaskRunner.run()\x1b[39m (pid=11612, ip=192.0.2.2)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 892.00 MiB. {"Process 7 has memory in use. " * 20}
  See documentation for Memory Management"""
CALL = (
    '<tool_call>\n{"name": "query_database_by_sql", "arguments": '
    '{"sql": "SELECT form FROM drugs_info WHERE med_name = \'Drug 1\'"}}\n</tool_call>'
)


WRITTEN, REWRITTEN, AGAIN = (f"```sql\nSELECT {number}\n```" for number in (1, 2, 3))
CHECKED = "Not so. VERDICT: WRONG"


def scripted(prompt: str) -> str:
    """What the policy says after `prompt`: in the roles of check-rewrite no statement pleases it."""
    last = prompt.rpartition("<|im_start|>user")[2]
    if "VERDICT: RIGHT or" in last:
        return CHECKED
    if "```sql block" in last:
        if "Question:" in last:
            return WRITTEN
        return AGAIN if REWRITTEN in prompt else REWRITTEN
    return "capsule" if "<tool_response>" in prompt else CALL


class ScriptedEngine:
    """Queries first, answers when it has seen rows. Its log-probabilities are minus the ids, so mix-ups show."""

    max_context = 100_000

    def __init__(self, tokenizer: Any, end_id: int) -> None:
        self._tokenizer = tokenizer
        self._end_id = end_id

    async def generate(self, prompt_ids: tuple[int, ...], sampling: Sampling, *, conversation: str) -> Generation:
        if os.environ.get("FAKE_VERL") == "lose":
            raise RuntimeError("the policy is gone")
        await asyncio.sleep(float(os.environ.get("FAKE_LATENCY_S", "0")))
        text = scripted(self._tokenizer.decode(prompt_ids))
        ids = (*self._tokenizer(text, add_special_tokens=False)["input_ids"], self._end_id)
        return Generation(ids, "stop", tuple(-float(i) for i in ids), (0, 0))


def serve(model: str, token: str | None = None) -> str:
    """Serve the scripted policy with the tokenizer of `model` in a thread, and return its address."""
    with without_torch():
        from sql_agent.training.serving.tokenizer import load_encoder, load_tokenizer

        encoder, (end_id, *_) = load_encoder(model)
        tokenizer = load_tokenizer(model)
    server = ServerThread(api_key=token or "")
    server.start(build_app(encoder, ScriptedEngine(tokenizer, end_id)))
    return server.base_url


@contextmanager
def without_torch() -> Iterator[None]:
    """Inside the context transformers finds no torch: its tokenizers import in two seconds, with torch in eight."""
    find = importlib.util.find_spec
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    with mock.patch("importlib.util.find_spec", lambda name, *of: None if name == "torch" else find(name, *of)):
        yield


async def train(options: dict[str, Any], overrides: dict[str, Any], metrics: Path) -> None:
    """Play the run: announce, validate, and then step by step roll out, log and save."""
    trainer, data = options["trainer"], options["data"]
    rollout_server, model = options["sql_agent"]["rollout_server"], options["actor_rollout_ref"]["model"]["path"]
    own = options["sql_agent"] | overrides.get("sql_agent", {})
    addresses = os.environ.get("FAKE_POLICIES", "").split()
    if not addresses:
        addresses = [serve(model, run_token()) for _ in range(own["endpoints"])]
    # As verl's agent loops do: aiohttp's own limit of 100 connections would be one of rollouts at once.
    connector, no_limit = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=no_limit, headers=bearer(run_token())) as session:
        await post(session, f"{rollout_server}/endpoints", addresses)
        folder = Path(trainer["default_local_dir"])
        saved = folder / "latest_checkpointed_iteration.txt"
        done = int(saved.read_text()) if trainer["resume_mode"] == "auto" else 0
        rows, val = (pq.read_table(data[name])["extra_info"].to_pylist() for name in ("train_files", "val_files"))
        if trainer["val_before_train"]:
            await roll_out(session, rollout_server, val, 0, copies=1)
            log(metrics, 0, {"val-core/reward": 0.5})
        halved = "ppo_max_token_len_per_gpu" in overrides["actor_rollout_ref"]["actor"]
        for step in range(done + 1, trainer["total_training_steps"] + 1):
            started = time.monotonic()
            size = data["train_batch_size"]
            chosen = [rows[(step * size + i) % len(rows)] for i in range(size)]
            copies = options["actor_rollout_ref"]["rollout"]["n"]
            outputs = await roll_out(session, rollout_server, chosen, step, copies=copies)
            gen_s = time.monotonic() - started
            if step == 2 and os.environ.get("FAKE_VERL") == "memory" and not halved:
                print(OUT_OF_MEMORY.replace("TaskRunner.run", "WorkerDict.actor_rollout_ref_update_actor"), flush=True)
                os._exit(1)
            await update()
            (metrics.parent / f"sequences-{step}.json").write_text(json.dumps(outputs))
            if step % trainer["save_freq"] == 0:
                folder.mkdir(exist_ok=True)  # noqa: ASYNC240
                (folder / f"global_step_{step}" / "actor").mkdir(parents=True)
                saved.write_text(str(step))
            if step % trainer["test_freq"] == 0:
                await roll_out(session, rollout_server, val, step, copies=1)
            timing = {"timing_s/gen": gen_s, "timing_s/update_actor": 0.25, "timing_s/step": gen_s + 0.25}
            log(metrics, step, {"actor/grad_norm": 1.5, "actor/lr": float("nan"), **timing})


async def update() -> None:
    """Play an update, in which the metrics of the step before are read."""
    if os.environ.get("FAKE_VERL") == "engine":
        print(ENGINE_FAILED, flush=True)
        await asyncio.Event().wait()
    await asyncio.sleep(2.0 if os.environ.get("FAKE_VERL") == "slow" else 0.5)


async def roll_out(
    session: aiohttp.ClientSession, rollout_server: str, rows: list[dict[str, Any]], step: int, *, copies: int
) -> list[Any]:
    """All sessions of a step at once, as verl's agent loops ask for them; a lost one raises."""
    orders = [
        {"question": row["question"], "mode": row["mode"], "step": step, "group": f"{step}-{index}"}
        for index, row in enumerate(rows)
        for _ in range(copies)
    ]
    return await asyncio.gather(*(post(session, f"{rollout_server}/rollouts", order) for order in orders))


async def post(session: aiohttp.ClientSession, url: str, body: Any) -> Any:
    async with session.post(url, json=body) as response:
        if response.status != 200:
            raise RuntimeError(f"{response.status} from {url}: {await response.text()}")
        return await response.json()


def log(metrics: Path, step: int, values: dict[str, float]) -> None:
    with metrics.open("a") as sink:
        sink.write(json.dumps({"step": step, "data": values}) + "\n")


def assert_sampled_ids_have_their_log_probabilities(part: dict[str, Any]) -> None:
    """Check a sequence of `sequences-STEP.json`: what the policy wrote is trained, with the numbers it was given."""
    ids, mask, logprobs = part["response_ids"], part["response_mask"], part["logprobs"]
    assert logprobs == [-float(i) if m else 0.0 for i, m in zip(ids, mask, strict=True)]
    assert mask[0] == mask[-1] == 1
    assert part["versions"] == [0, 0]


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        print(serve(sys.argv[2]), flush=True)
        threading.Event().wait()
    given = json.loads(Path(sys.argv[1]).read_text())
    if os.environ.get("FAKE_VERL") == "crash":
        print(OUT_OF_MEMORY)
        sys.exit(1)
    if os.environ.get("FAKE_VERL") == "slow":
        print("\x1b[36m(WorkerDict pid=7)\x1b[0m Capturing CUDA graphs [/]  40%", flush=True)
        time.sleep(2)
    end_of_start_part("Ray")
    if given["sft_result"] is not None:
        given["options"]["actor_rollout_ref"]["model"]["path"] = wait_for_sft_result(Path(given["sft_result"]))
    asyncio.run(train(given["options"], given["overrides"], Path(given["environment"]["VERL_FILE_LOGGER_PATH"])))
