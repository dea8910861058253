"""Compare the GPU memory that is reckoned before a run with what the run takes, on a host with a GPU.

    python benchmarks/memory_plan.py --small MODEL_OF_0.5B --model MODEL_OF_1.5B --spider DIR [--only NAME,NAME]

Each configuration is a run of five steps in a process of its own. A line of JSON for each goes to stdout and to
OUT/memory_plan.jsonl: GB planned by phase, GB that torch allocated in the trainer by phase, the peak of the whole card
by nvidia-smi in supervised fine-tuning and afterwards, seconds a step, and the error of a run that failed. The
7B model has random weights, made in OUT, with the tokenizer of --model. Smaller cards are planned for, not enforced:
compare `card_gb` with the memory in the name.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sql_agent.config.settings import Settings  # noqa: E402
from sql_agent.system.resources import gpu_memory  # noqa: E402
from sql_agent.training.verl.memory import GB, plan_memory  # noqa: E402

_SIZES_7B = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False, "max_position_embeddings": 32768,
}  # fmt: skip
_POLL_S = 0.3
_GRACE_S = 60.0


@dataclass(frozen=True)
class Configuration:
    """A run to measure: its `name`, its model and the arguments that differ."""

    name: str
    model: str
    arguments: tuple[str, ...] = ()


# A random model earns nothing, so its groups never differ; with a KL term they are trained all the same.
CONFIGURATIONS = (
    Configuration("spider-1.5b", "model", ("--task=spider",)),
    Configuration("medical-1.5b", "model"),
    Configuration("spider-1.5b-40", "model", ("--task=spider", "verl.gpu_memory_gb=40")),
    Configuration("medical-1.5b-40", "model", ("verl.gpu_memory_gb=40",)),
    Configuration("spider-1.5b-24-lora", "model", ("--task=spider", "verl.gpu_memory_gb=24", "--lora-rank=32")),
    Configuration("medical-0.5b-24", "small", ("verl.gpu_memory_gb=24",)),
    Configuration("spider-0.5b-24", "small", ("--task=spider", "verl.gpu_memory_gb=24")),
    Configuration("spider-0.5b", "small", ("--task=spider",)),
    Configuration("medical-7b-lora", "7b", ("--lora-rank=32", "train.kl_coef=0.001", "train.questions_per_step=16")),
)


def main() -> int:
    """Measure the chosen configurations, and return the number of runs that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", help="folder of the model of 0.5B")
    parser.add_argument("--model", help="folder of the model of 1.5B")
    parser.add_argument("--spider", type=Path, help="folder of Spider's data")
    names = [configuration.name for configuration in CONFIGURATIONS]
    parser.add_argument("--only", metavar="NAME,…", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--sft-steps", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each run")
    parser.add_argument("--out", type=Path, default=Path("memory_plan"))
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    arguments = parser.parse_intermixed_args()
    chosen = arguments.only.split(",") if arguments.only else names
    if unknown := set(chosen) - set(names):
        parser.error(f"unknown: {', '.join(unknown)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for configuration in CONFIGURATIONS:
        if configuration.name not in chosen:
            continue
        try:
            result = measure(configuration, arguments)
        except Exception as error:  # the other configurations are measured all the same
            result = {"error": f"{type(error).__name__}: {error}"}
        line = json.dumps({"name": configuration.name, **result})
        print(line, flush=True)
        with (arguments.out / "memory_plan.jsonl").open("a", encoding="utf-8") as sink:
            sink.write(line + "\n")
        failed += bool(result.get("error"))
    return failed


def measure(configuration: Configuration, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run a configuration and return its line."""
    spider = [f"--data-dir={arguments.spider}"] if "--task=spider" in configuration.arguments else []
    if spider and arguments.spider is None:
        return {"error": "not run: give --spider"}
    model = _model(configuration.model, arguments)
    if model is None:
        return {"error": f"not run: give --{configuration.model}"}
    cache = arguments.out / "cache"
    run, probe = arguments.out / configuration.name, (arguments.out / f"{configuration.name}.probe.jsonl").absolute()
    shutil.rmtree(run, ignore_errors=True)
    probe.unlink(missing_ok=True)
    command = [
        sys.executable, str(ROOT / "sql_agent" / "train_sql_agent.py"), "--backend=verl", f"--model={model}",
        *configuration.arguments, *spider, f"runs_dir={arguments.out}", f"run_name={configuration.name}",
        f"train.steps={arguments.steps}", "train.save_every=1000", "train.keep_checkpoints=1",
        f"sft.steps={arguments.sft_steps}", f"local.cache_dir={cache}", "data.val_questions=8",
        "data.natural_questions=0",
        "verl.config.actor_rollout_ref.model.external_lib=benchmarks.memory_probe", *arguments.overrides,
    ]  # fmt: skip
    started = time.monotonic()
    with Watch(run / ("sft.json" if arguments.sft_steps else "config.json")) as watch:
        code = _run(command, arguments, configuration.name, os.environ | {"MEMORY_PROBE": str(probe)})
    result: dict[str, Any] = {
        "seconds": round(time.monotonic() - started),
        "card_gb": watch.peaks,
        "trainer_gb": _peaks(probe),
        "step_s": _step_seconds(run),
    }
    if (run / "config.json").exists():
        result |= _planned(run)
    if code:
        text = (arguments.out / f"{configuration.name}.log").read_text(encoding="utf-8", errors="replace")
        result["error"] = f"exit code {code}: " + " | ".join(text.splitlines()[-6:])[-1500:]
    for folder in (run / "checkpoints", cache):  # each run fine-tunes anew
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _run(command: Sequence[str], arguments: argparse.Namespace, name: str, environment: dict[str, str]) -> int:
    """Run `command` with its output in OUT/NAME.log, and return its exit code; after the time limit it is ended."""
    with (arguments.out / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=environment
        )
        try:
            return process.wait(arguments.timeout)
        except subprocess.TimeoutExpired:
            for number in (signal.SIGINT, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_GRACE_S)
            return process.returncode or 124


class Watch:
    """Inside the context, the peak of the card's used GB beyond those at the start, before and after `finetuned`."""

    def __init__(self, finetuned: Path) -> None:
        self.peaks: dict[str, float] = {}
        self._finetuned = finetuned
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> Watch:
        self._before = _used()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._ended.wait(_POLL_S):
            phase = "afterwards" if self._finetuned.exists() else "fine-tuning"
            self.peaks[phase] = round(max(self.peaks.get(phase, 0.0), _used() - self._before), 2)


def _used() -> float:
    """Return the used GB of the GPU that has the least free memory; 0 when nvidia-smi fails."""
    found = gpu_memory()
    return (found[0] - found[1]) / GB if found else 0.0


def _peaks(probe: Path) -> dict[str, float]:
    """Return the largest allocated GB of the trainer by part."""
    peaks: dict[str, float] = {}
    for line in _lines(probe):
        peaks[line["part"]] = round(max(peaks.get(line["part"], 0.0), line["allocated"]), 2)
    return peaks


def _planned(run: Path) -> dict[str, Any]:
    """Return a run's plan: the whole GPU by phase, the trainer's tensors by phase, and the size of micro-batches."""
    plan = plan_memory(Settings(**json.loads((run / "config.json").read_text(encoding="utf-8"))))
    elsewhere = ("CUDA and vLLM's graphs", "vLLM")
    return {
        "planned_card_gb": {phase: round(sum(parts.values()) / GB, 2) for phase, parts in plan.phases.items()},
        "planned_trainer_gb": {
            phase: round(sum(size for part, size in parts.items() if part not in elsewhere) / GB, 2)
            for phase, parts in plan.phases.items()
        },
        "tokens": plan.tokens,
        "checkpointing": plan.checkpointing,
        "vllm_gb": round(plan.vllm / GB, 2),
        "sft_tokens": plan.sft_tokens,
        "usable_gb": round(plan.card.usable / GB, 2),
    }


def _step_seconds(run: Path) -> float | None:
    seconds = [line["timing_s/step"] for line in _lines(run / "metrics.jsonl") if "timing_s/step" in line]
    return round(statistics.median(seconds), 1) if seconds else None


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def _model(name: str, arguments: argparse.Namespace) -> str | None:
    """Return the folder of a configuration's model; None if it was not given."""
    if name != "7b" or arguments.model is None:
        given: str | None = getattr(arguments, name, None)
        return given
    folder = arguments.out / "random-7b"
    if not (folder / "config.json").exists():
        made = subprocess.run(
            [sys.executable, "-c", _MAKE_7B, arguments.model, str(folder), json.dumps(_SIZES_7B)], check=False
        )
        if made.returncode:
            raise RuntimeError(f"the random model was not made: exit code {made.returncode}")
    return str(folder)


# In a process of its own, which frees the GPU when it ends.
_MAKE_7B = """
import json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
source, folder, sizes = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
torch.manual_seed(0)
config = AutoConfig.for_model("qwen2", **sizes)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
model.save_pretrained(folder)
AutoTokenizer.from_pretrained(source).save_pretrained(folder)
"""


if __name__ == "__main__":
    sys.exit(main())
