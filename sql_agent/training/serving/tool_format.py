"""Parse tool calls and thoughts in the formats of several model families, and detect a model's format.

transformers parses a reply only if the tokenizer has a response template. Few tokenizers have such a template, and its
syntax differs between transformers 5.9 and 5.23. vLLM's parsers need vLLM.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sql_agent.config.settings_schema import AgentSettings
from sql_agent.errors import ModelError

# Special tokens in calls and around thoughts, which decoding must keep.
MARKS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "<|python_tag|>", "<think>", "</think>")

_BLOCK = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_BARE = re.compile(r"\A\s*(?:```(?:json)?\s*)?(\{.*\})\s*(?:```)?\s*\Z", re.DOTALL)
_LLAMA = re.compile(r"\A\s*(?:<\|python_tag\|>)?\s*(\{.*\})\s*\Z", re.DOTALL)
_MISTRAL_NAMED = re.compile(
    r"\A\s*([\w.-]+?)\s*(?:\[CALL_ID\][\w-]+)?\s*(?:\[ARGS\])?\s*(\{.*\})\s*\Z", re.DOTALL
)  # name[CALL_ID]id[ARGS]{…}
_XML = re.compile(r"<tool_call>\s*<function=([^>\s]+)>(.*?)</function>\s*</tool_call>", re.DOTALL)
_XML_ARGUMENT = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_TOOL_CODE = re.compile(r"```tool_code\s*\n(.*?)\n?```", re.DOTALL)
_APOSTROPHE = re.compile(r"(?<!\\)((?:\\\\)*)\\'")  # JSON knows no such escape
_IN_WORD = re.compile(r"(?<=\w)\\'(?=\w)")  # as in 'Athlete\'s foot', which SQL writes 'Athlete''s foot'
_THOUGHT = re.compile(r"\A\s*<think>(.*?)(?:</think>|\Z)(.*)\Z", re.DOTALL)
# The import of transformers takes two seconds without torch, and eight seconds with torch.
_START = f"import sys; sys.modules['torch'] = None; from {__name__} import main; main()"


class Call(NamedTuple):
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ParsedReply:
    """The thought and the tool calls of a reply, and the text outside of both, `content`."""

    thought: str
    content: str
    calls: tuple[Call, ...]


def parse_reply(text: str, tool_format: str, *, thought_open: bool = False) -> ParsedReply:
    """Parse the reply `text`, with calls in the format `tool_format`; a malformed call stays in the content.

    `thought_open` says that the prompt ended with `<think>`. A thought without an end is the whole reply.
    """
    if thought_open and not text.lstrip().startswith("<think>"):
        text = f"<think>{text}"
    match = _THOUGHT.match(text)
    thought, rest = (match[1].strip(), match[2]) if match else ("", text)
    content, calls = _PARSERS[tool_format](rest)
    return ParsedReply(thought, content.strip() if calls else rest.strip(), tuple(calls))


def has_open_thought(text: str, *, thought_open: bool) -> bool:
    """Return whether `text` begins with a thought that is not closed."""
    return (thought_open or text.lstrip().startswith("<think>")) and "</think>" not in text


def tool_format_of(model: str, agent: AgentSettings) -> str:
    """Return the tool-call format of `model`, such as "hermes". Raises the errors of `load_tokenizer`."""
    command = [sys.executable, "-c", _START, model, agent.model_dump_json()]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    try:
        found: dict[str, str] = json.loads(result.stdout.splitlines()[-1])  # earlier lines come from libraries
    except (ValueError, IndexError):
        reason = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
        raise ModelError(
            f"cannot load the tokenizer of {model!r}: {reason}",
            hint="check the model's files, or give --model another Hugging Face folder or id",
        ) from None
    if "message" in found:
        raise ModelError(found["message"], hint=found["hint"])
    return found["tool_format"]


def main() -> None:
    """Print the tool-call format of the model in the first command-line argument, or an error, as JSON."""
    from sql_agent.training.serving.tokenizer import load_encoder  # noqa: PLC0415  only in the other process

    try:
        encoder, _ = load_encoder(sys.argv[1], AgentSettings.model_validate_json(sys.argv[2]))
        found = {"tool_format": encoder.tool_format}
    except ModelError as error:
        found = {"message": error.message, "hint": error.hint or ""}
    print(json.dumps(found))


_Parsed = tuple[str, list[Call]]  # the text outside of the calls, and the calls


def _hermes(text: str) -> _Parsed:
    """Parse <tool_call>{"name": …, "arguments": {…}}</tool_call>, the format of Hermes, Qwen2.5, Qwen3 and SmolLM.

    A reply that is only the JSON object, with or without a code fence, is a call too, because models trained on code
    write such calls.
    """
    sources = [match[1] for match in _BLOCK.finditer(text)] or _BARE.findall(text)
    return _BLOCK.sub("", _BARE.sub("", text)), list(_json_calls(sources, "arguments"))


def _llama3_json(text: str) -> _Parsed:
    """Parse {"name": …, "parameters": {…}}, alone or after <|python_tag|>: one call a turn, as in Llama 3.1 to 3.3."""
    return "", list(_json_calls(_LLAMA.findall(text), "parameters"))


def _mistral(text: str) -> _Parsed:
    """Parse [TOOL_CALLS][{"name": …, "arguments": {…}}], or [TOOL_CALLS]name[ARGS]{…} for each call in newer models."""
    content, *parts = text.split("[TOOL_CALLS]")
    calls: list[Call] = []
    for part in parts:
        if named := _MISTRAL_NAMED.match(part):
            calls += _calls_of({"name": named[1], "arguments": _loaded(named[2])}, "arguments")
        else:
            listed = _loaded(part)
            calls += [call for item in (listed if isinstance(listed, list) else ()) for call in _calls_of(item)]
    return content, calls


def _qwen3_coder(text: str) -> _Parsed:
    """Parse <tool_call><function=name><parameter=sql>…</parameter></function></tool_call>, as in Qwen3-Coder.

    All argument values are strings.
    """
    calls = [Call(name, dict(_XML_ARGUMENT.findall(body))) for name, body in _XML.findall(text)]
    return _XML.sub("", text), calls


def _pythonic(text: str) -> _Parsed:
    """Parse a reply that is only [name(sql="…")], as in Llama 4."""
    return "", _python_calls(text)


def _gemma(text: str) -> _Parsed:
    """Parse name(sql="…") in a code fence `tool_code`, as in Gemma 2 and 3."""
    return _TOOL_CODE.sub("", text), [call for source in _TOOL_CODE.findall(text) for call in _python_calls(source)]


_PARSERS: Mapping[str, Callable[[str], _Parsed]] = {
    "hermes": _hermes,
    "llama3_json": _llama3_json,
    "mistral": _mistral,
    "qwen3_coder": _qwen3_coder,
    "pythonic": _pythonic,
    "gemma": _gemma,
}
FORMATS = tuple(_PARSERS)


def _json_calls(sources: list[str], arguments: str) -> Iterator[Call]:
    for source in sources:
        yield from _calls_of(_loaded(source), arguments)


def _calls_of(body: Any, arguments: str = "arguments") -> Iterator[Call]:
    """Yield the call in `body` if `body` is an object with a string "name" and an object under the key `arguments`."""
    if isinstance(body, dict) and isinstance(body.get("name"), str) and isinstance(body.get(arguments), dict):
        yield Call(body["name"], body[arguments])


def _loaded(source: str) -> Any:
    """Parse JSON, which small models write with line breaks in strings and with \\'; return None for other texts."""
    try:
        return json.loads(_APOSTROPHE.sub(r"\1'", _IN_WORD.sub("''", source)), strict=False)
    except (ValueError, RecursionError):  # RecursionError: JSON that is nested hundreds of levels deep
        return None


def _python_calls(source: str) -> list[Call]:
    """Parse a call or a list of calls in Python's syntax, with literals as keyword arguments; return [] otherwise."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns, for example, about "\d" in a string
            tree = ast.parse(source.strip(), mode="eval").body
        nodes = tree.elts if isinstance(tree, ast.List) else [tree]
        if not all(isinstance(node, ast.Call) and not node.args for node in nodes):
            return []
        calls = [
            Call(ast.unparse(node.func), {str(each.arg): ast.literal_eval(each.value) for each in node.keywords})
            for node in nodes
            if isinstance(node, ast.Call)
        ]
        json.dumps([call.arguments for call in calls])  # raises TypeError for values that JSON lacks, such as bytes
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return []
    return calls
