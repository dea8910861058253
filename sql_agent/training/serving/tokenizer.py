"""Load a model's tokenizer with a chat template that renders tools, and find the ids that end a turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, GenerationConfig

from sql_agent.errors import ModelError
from sql_agent.training.serving.chat import ChatEncoder

TOOL_TEMPLATE = Path(__file__).with_name("chat_template.jinja")
_CHATML = ("<|im_start|>", "<|im_end|>")


def load_tokenizer(folder: str) -> Any:
    """Load the tokenizer of a Hugging Face folder or id, with a chat template that renders tools.

    A template that renders no tools is replaced by ours. Code in the folder is never run. Raises ModelError when the
    tokenizer cannot be loaded or its vocabulary lacks the tokens of our template.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"cannot load the tokenizer of {folder!r}: {str(error).splitlines()[0]}",
            hint="give --model a Hugging Face folder or id",
        ) from error
    template = tokenizer.chat_template
    if isinstance(template, str) and "tools" in template:
        return tokenizer
    vocabulary = tokenizer.get_vocab()
    if not all(token in vocabulary for token in _CHATML):
        raise ModelError(
            f"the chat template of {folder!r} does not render tools, and its vocabulary has no {_CHATML[0]}",
            hint="use a model whose template renders `tools`, such as Qwen2.5-Instruct",
        )
    tokenizer.chat_template = TOOL_TEMPLATE.read_text(encoding="utf-8")
    return tokenizer


def stop_ids(tokenizer: Any, generation: GenerationConfig | None) -> tuple[int, ...]:
    """Return the ids that end a turn, first the id that the template writes. Raises ModelError when there is none."""
    configured = generation.eos_token_id if generation else None
    ids = [tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])]
    if _CHATML[1] in tokenizer.get_vocab():
        ids.insert(0, tokenizer.convert_tokens_to_ids(_CHATML[1]))
    known = tuple(dict.fromkeys(i for i in ids if i is not None))
    if not known:
        raise ModelError("the tokenizer has no end token", hint="set eos_token in tokenizer_config.json")
    return known


def load_encoder(model: str) -> tuple[ChatEncoder, tuple[int, ...]]:
    """Load the tokenizer of `model`; returns the encoder of its conversations and the ids that end a turn.

    Raises ModelError as `load_tokenizer` and `stop_ids` do.
    """
    tokenizer = load_tokenizer(model)
    try:
        generation = GenerationConfig.from_pretrained(model)
    except OSError:  # there is no generation_config.json
        generation = None
    ids = stop_ids(tokenizer, generation)
    return ChatEncoder(tokenizer, ids[0]), ids
