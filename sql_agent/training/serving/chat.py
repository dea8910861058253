"""Convert chat messages to token ids and back; the sampled ids of earlier turns are reused exactly."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

JsonObject = dict[str, Any]  # a message, a tool or a tool call in the form of OpenAI's API
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_BARE_CALL = re.compile(r"\A\s*(?:```(?:json)?\s*)?(\{.*\})\s*(?:```)?\s*\Z", re.DOTALL)
_REMEMBERED = 2048  # turns


class ChatEncoder:
    """Renders conversations with one tokenizer, whose end token has the id `end_id`.

    Decoding ids and encoding the text again can give other ids, and some templates rewrite earlier turns. In both cases
    the next prompt would not continue the sampled sequence, so `remember` keeps the ids of each turn and `encode`
    reuses these ids.
    """

    def __init__(self, tokenizer: Any, end_id: int) -> None:
        self._tokenizer = tokenizer
        self._end_id = end_id
        self._end_text: str = tokenizer.convert_ids_to_tokens(end_id)
        self._known: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def encode(self, messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None) -> tuple[int, ...]:
        """Return the prompt ids of the model's next turn after `messages`, with the sampled ids of earlier turns."""
        full = self._render(messages, tools, prompt=True)
        for index in range(len(messages) - 1, -1, -1):
            if messages[index]["role"] != "assistant":
                continue
            head = list(messages[: index + 1])
            with self._lock:
                seen = self._known.get(_key(head, tools))
            if seen is None:
                continue
            tail = self._tail(full, self._render(head, tools, prompt=False))
            if tail is None:
                continue
            closed = seen if seen[-1] == self._end_id else (*seen, self._end_id)
            return closed + self._ids(tail)
        return self._ids(full)

    def remember(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None, token_ids: tuple[int, ...]
    ) -> None:
        """Keep the ids of `messages`, the last of which the model wrote; the last 2048 conversations are kept."""
        with self._lock:
            self._known[_key(messages, tools)] = token_ids
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def reply(self, token_ids: Sequence[int]) -> JsonObject:
        """Decode sampled ids into an assistant message; an incomplete tool call stays text, as in vLLM."""
        text = self._tokenizer.decode(token_ids, skip_special_tokens=True)
        calls = parse_tool_calls(text)
        content = _CALL.sub("", _BARE_CALL.sub("", text)).strip() if calls else text.strip()
        message: JsonObject = {"role": "assistant", "content": content or None}
        if calls:
            message["tool_calls"] = calls
        return message

    def _tail(self, full: str, head: str) -> str | None:
        """Return what `full` has after the last end token of `head`; None if the template rewrote earlier turns."""
        if not full.startswith(head) or self._end_text not in head:
            return None
        return head.rpartition(self._end_text)[2] + full[len(head) :]

    def _render(self, messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None, *, prompt: bool) -> str:
        text: str = self._tokenizer.apply_chat_template(
            [_for_template(m) for m in messages], tools=tools or None, add_generation_prompt=prompt, tokenize=False
        )
        return text

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def parse_tool_calls(text: str) -> list[JsonObject]:
    """Parse the tool calls in `text` into OpenAI's form, in Hermes style like vLLM's parser `hermes`.

    A <tool_call> block is a call if it is a JSON object with a string `name` and an object `arguments`. A text that is
    nothing but such an object, bare or in a code fence, is a call too, because models trained on code write calls so.
    """
    calls = []
    for source in [match.group(1) for match in _CALL.finditer(text)] or _BARE_CALL.findall(text):
        try:
            body = json.loads(source)
            name, arguments = body.get("name"), body.get("arguments")
            text_of_arguments = json.dumps(arguments, ensure_ascii=False)
        except (ValueError, RecursionError):  # RecursionError: JSON that is nested hundreds of levels deep
            continue
        if isinstance(name, str) and isinstance(arguments, dict):
            function = {"name": _encodable(name), "arguments": _encodable(text_of_arguments)}
            calls.append({"id": f"call_{uuid.uuid4().hex[:20]}", "type": "function", "function": function})
    return calls


def _encodable(text: str) -> str:
    """Replace lone surrogates, such as from the JSON escape \\ud83d, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def text_of(content: Any) -> str:
    """Return the text of a message's content, which is a string, a list of parts, or None."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def opening(messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None) -> str:
    """Return a hexadecimal digest of the tools and of the messages before the model's first turn."""
    first = itertools.takewhile(lambda m: m["role"] != "assistant", messages)
    return hashlib.sha256(_key(list(first), tools).encode()).hexdigest()


def _for_template(message: JsonObject) -> JsonObject:
    clean: JsonObject = {"role": message["role"], "content": text_of(message.get("content"))}
    if message.get("tool_calls"):
        clean["tool_calls"] = [
            {"type": "function", "function": {"name": c["function"]["name"], "arguments": _arguments(c)}}
            for c in message["tool_calls"]
        ]
    return clean


def _arguments(call: JsonObject) -> Any:
    raw = call["function"]["arguments"]
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw


def _key(messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None) -> str:
    """Return the identity of a conversation: the fields that every OpenAI client sends back unchanged."""
    essence = [
        (
            m["role"],
            text_of(m.get("content")),
            [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in m.get("tool_calls") or []],
            m.get("tool_call_id"),
        )
        for m in messages
    ]
    return json.dumps([essence, tools or []], sort_keys=True)
