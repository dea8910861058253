"""Load a model's tokenizer with a chat template that renders tools, and find the ids of the stop tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import AutoTokenizer, GenerationConfig

from sql_agent.config.settings_schema import AgentSettings
from sql_agent.errors import ModelError
from sql_agent.training.serving.chat import ChatEncoder, Ids
from sql_agent.training.serving.tool_format import FORMATS

TOOL_TEMPLATE = Path(__file__).with_name("chat_template.jinja")
# Our templates for models whose own chat template renders no tools, by the tokens before and after a turn.
_TEMPLATES = {
    ("<|im_start|>", "<|im_end|>"): TOOL_TEMPLATE,
    ("<start_of_turn>", "<end_of_turn>"): Path(__file__).with_name("gemma_template.jinja"),
}
_PROBE = "Yes."
DEFAULT_AGENT = AgentSettings()


def load_tokenizer(folder: str, agent: AgentSettings = DEFAULT_AGENT) -> Any:
    """Load the tokenizer of a Hugging Face folder or id, with a chat template that renders tools.

    The template is the file `agent.chat_template`, if set, else the model's own if it renders tools, else one of ours.
    No code from the folder is run. Raises ModelError when the tokenizer cannot be loaded, when no template fits, and
    when `agent.tool_format` is "auto" and the template renders tool calls in an unknown format.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"cannot load the tokenizer of {folder!r}: {str(error).splitlines()[0]}",
            hint="give --model a Hugging Face folder or id",
        ) from error
    tokenizer.chat_template = _template(tokenizer, folder, agent.chat_template)
    end_ids = _end_ids(tokenizer)
    if agent.tool_format == "auto" and end_ids and ChatEncoder(tokenizer, end_ids[0]).find_tool_format() is None:
        raise ModelError(
            f"the tool-call format of {folder!r} is unknown: its chat template renders none of the known formats "
            f"({', '.join(FORMATS)})",
            hint="set agent.tool_format to a format, or agent.chat_template to a template that renders tool calls",
        )
    return tokenizer


def _template(tokenizer: Any, folder: str, given: Path | None) -> str:
    if given is not None:
        try:
            return given.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(
                f"cannot read agent.chat_template={given}: {error}", hint="set it to a file with a Jinja template"
            ) from None
    own = tokenizer.chat_template
    if isinstance(own, dict):  # several templates by name
        own = own.get("tool_use", own.get("default"))
    if isinstance(own, str) and "tools" in own:
        return own
    vocabulary = tokenizer.get_vocab()
    for tokens, file in _TEMPLATES.items():
        if all(token in vocabulary for token in tokens):
            return file.read_text("utf-8")
    known = ", ".join(opening for opening, _ in _TEMPLATES)
    raise ModelError(
        f"the chat template of {folder!r} renders no tools, and its tokenizer has no token of our templates: {known}",
        hint="set agent.chat_template to a template that renders `tools`, or use a model that has such a template, "
        "for example Qwen2.5-Instruct",
    )


def stop_ids(tokenizer: Any, generation: GenerationConfig | None) -> Ids:
    """Return the ids of the stop tokens; the first is the token that the chat template writes after a turn.

    Raises ModelError when neither the tokenizer nor `generation` has a stop token.
    """
    configured = generation.eos_token_id if generation else None
    ids = [*_end_ids(tokenizer), *(configured if isinstance(configured, list) else [configured])]
    known = tuple(dict.fromkeys(i for i in ids if i is not None))
    if not known:
        raise ModelError("the tokenizer has no end token", hint="set eos_token in tokenizer_config.json")
    return known


def _end_ids(tokenizer: Any) -> list[int]:
    """Return the ids of the special token that the chat template writes after a turn, and of the tokenizer's EOS."""
    messages = [{"role": "user", "content": "Is it?"}, {"role": "assistant", "content": _PROBE}]
    try:
        rendered = tokenizer.apply_chat_template(messages, tokenize=False)
    except (TemplateError, TypeError):
        rendered = ""
    rest = rendered.rpartition(_PROBE)[2].lstrip()
    special = {token.content: number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    written = sorted((text for text in special if rest.startswith(text)), key=len)
    ids = [special[text] for text in written[-1:]]
    return ids if tokenizer.eos_token_id is None else [*ids, tokenizer.eos_token_id]


def load_encoder(model: str, agent: AgentSettings = DEFAULT_AGENT) -> tuple[ChatEncoder, Ids]:
    """Load the tokenizer of `model`, a folder or hub id; return a ChatEncoder and the ids of the stop tokens."""
    tokenizer = load_tokenizer(model, agent)
    try:
        generation = GenerationConfig.from_pretrained(model)
    except OSError:  # there is no generation_config.json
        generation = None
    ids = stop_ids(tokenizer, generation)
    return ChatEncoder(tokenizer, ids[0], agent.tool_format), ids
