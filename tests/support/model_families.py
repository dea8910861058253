"""Tokenizers and chat templates in the forms of the model families, written for the tests; no vendor's own files."""
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path
from typing import Any

_CHATML = """\
{%- for m in messages -%}
{%- if m.role == 'tool' -%}{{ '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif m.role == 'assistant' -%}
{{- '<|im_start|>assistant\\n' -}}THOUGHT{{- m.content -}}
{%- for c in m.tool_calls or [] -%}CALL{%- endfor -%}{{- '<|im_end|>\\n' -}}
{%- else -%}{{ '<|im_start|>' + m.role + '\\n' + m.content }}
{%- if loop.first and tools -%}{{ '\\nTools: ' + tools | tojson }}{%- endif -%}{{ '<|im_end|>\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}PROMPT{%- endif -%}
"""
_JSON_CALL = "{{- '<tool_call>\\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' + c.function.arguments | tojson + '}\\n</tool_call>' -}}"
_XML_CALL = """\
{{- '<tool_call>\\n<function=' + c.function.name + '>\\n' -}}
{%- for k, v in c.function.arguments | items -%}{{ '<parameter=' + k + '>\\n' + v + '\\n</parameter>\\n' }}{%- endfor -%}
{{- '</function>\\n</tool_call>' -}}"""
# As Qwen3: thoughts are kept since the last question only, an empty one is in the last turn only, and in the prompt
# when thinking is off.
_QWEN3_THOUGHT = """\
{%- set after = namespace(question=false) -%}
{%- for later in messages[loop.index:] -%}{%- if later.role == 'user' -%}{%- set after.question = true -%}{%- endif -%}{%- endfor -%}
{%- if not after.question and (loop.last or m.reasoning_content) -%}
{{- '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' -}}
{%- endif -%}"""
_QWEN3_PROMPT = (
    "{%- if enable_thinking is defined and not enable_thinking -%}{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}"
)

_LLAMA = """\
{{- bos_token -}}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}{{ '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + m.content | tojson + '<|eot_id|>' }}
{%- else -%}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}
{%- if m.tool_calls -%}
{%- if m.tool_calls | length != 1 -%}{{ raise_exception('one call a turn') }}{%- endif -%}
{%- set c = m.tool_calls[0].function -%}CALL
{%- else -%}{{ m.content | trim }}{%- endif -%}
{%- if loop.first and tools -%}{{ '\\nTools: ' + tools | tojson }}{%- endif -%}
{{- '<|eot_id|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}
"""
_PARAMETERS_CALL = "{{- '{\"name\": \"' + c.name + '\", \"parameters\": ' + c.arguments | tojson + '}' -}}"
_PYTHON_CALL = "{{- '[' + c.name + '(' -}}{%- for k, v in c.arguments | items -%}{{ k + '=' + v | tojson }}{%- if not loop.last -%}{{ ', ' }}{%- endif -%}{%- endfor -%}{{- ')]' -}}"

_MISTRAL = """\
{{- bos_token -}}
{%- set questions = messages | selectattr('role', 'equalto', 'user') | list -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}{{ '[TOOL_RESULTS]{"content": ' + m.content | tojson + ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' }}
{%- elif m.role == 'assistant' -%}
{%- if m.tool_calls -%}{{ '[TOOL_CALLS]' }}CALLS
{%- else -%}{{ ' ' + m.content }}{%- endif -%}{{- eos_token -}}
{%- else -%}
{%- if m == questions[-1] and tools -%}{{ '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{%- endif -%}
{{- '[INST] ' + m.content + '[/INST]' -}}
{%- endif -%}
{%- endfor -%}
"""
_MISTRAL_LIST = """\
{{- '[' -}}
{%- for c in m.tool_calls -%}
{%- if c.id | length != 9 -%}{{ raise_exception('an id has nine characters') }}{%- endif -%}
{{- '{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson + ', "id": "' + c.id + '"}' -}}
{%- if not loop.last -%}{{ ', ' }}{%- endif -%}
{%- endfor -%}{{- ']' -}}"""
_MISTRAL_NAMED = (
    "{%- for c in m.tool_calls -%}{{ c.function.name + '[ARGS]' + c.function.arguments | tojson }}{%- endfor -%}"
)

_SPECIALS = {
    "chatml": ("<|endoftext|>", "<|im_end|>", "<|im_start|>"),
    "llama": ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"),
    "mistral": ("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    "gemma": ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
}  # fmt: skip


def _chatml(call: str, thought: str = "", prompt: str = "") -> str:
    return _CHATML.replace("CALL", call).replace("THOUGHT", thought).replace("PROMPT", prompt)


# Family: its special tokens, its template (None: it renders no tools), its form of calls, the token that ends a turn.
FAMILIES: dict[str, tuple[str, str | None, str, str]] = {
    "qwen2.5": ("chatml", _chatml(_JSON_CALL), "hermes", "<|im_end|>"),
    "qwen3": ("chatml", _chatml(_JSON_CALL, _QWEN3_THOUGHT, _QWEN3_PROMPT), "hermes", "<|im_end|>"),
    "qwen3-coder": ("chatml", _chatml(_XML_CALL), "qwen3_coder", "<|im_end|>"),
    "llama3.2": ("llama", _LLAMA.replace("CALL", _PARAMETERS_CALL), "llama3_json", "<|eot_id|>"),
    "llama4": ("llama", _LLAMA.replace("CALL", _PYTHON_CALL), "pythonic", "<|eot_id|>"),
    "mistral": ("mistral", _MISTRAL.replace("CALLS\n", _MISTRAL_LIST + "\n"), "mistral", "</s>"),
    "mistral-small": ("mistral", _MISTRAL.replace("CALLS\n", _MISTRAL_NAMED + "\n"), "mistral", "</s>"),
    "gemma3": ("gemma", None, "gemma", "<end_of_turn>"),
    "smollm2": ("chatml", None, "hermes", "<|im_end|>"),
}  # fmt: skip


def make_tokenizer(family: str) -> Any:
    """A byte-level tokenizer with the special tokens and the template of `family`; ids are those of the bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens, template, _, _ = FAMILIES[family]
    specials = _SPECIALS[tokens]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate([*specials, *alphabet])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=specials[0],
        eos_token=specials[1],
        pad_token=specials[0],
        additional_special_tokens=list(specials),
    )
    fast.chat_template = template
    return fast


def make_family_model(folder: Path, family: str) -> Path:
    """Write a random two-layer model of the architecture of `family` with its tokenizer; returns `folder`."""
    import torch
    import transformers

    tokenizer = make_tokenizer(family)
    _, _, _, end = FAMILIES[family]
    kind = {"qwen": "Qwen3", "mist": "Mistral", "gemm": "Gemma3"}.get(family[:4], "Llama")
    config = getattr(transformers, "Gemma3TextConfig" if kind == "Gemma3" else f"{kind}Config")(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=8192,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.convert_tokens_to_ids(end),
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
