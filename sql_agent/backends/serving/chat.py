"""Chat messages to token ids and back, with the sampled ids of earlier turns kept exactly."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_BARE_CALL = re.compile(r"\A\s*(?:```(?:json)?\s*)?(\{.*\})\s*(?:```)?\s*\Z", re.DOTALL)
_REMEMBERED = 2048


@dataclass(frozen=True)
class Reply:
    """A model's turn as an OpenAI message, plus the ids it came from (the end token included when sampled)."""

    message: Message
    token_ids: tuple[int, ...]


class ChatEncoder:
    """Renders conversations for one tokenizer.

    Text that is decoded and encoded again can change its ids, and some templates rewrite earlier turns. Either way
    the next prompt would no longer continue what was sampled, so `remember` keeps the ids of each turn and `encode`
    puts them back.
    """

    def __init__(self, tokenizer: Any, end_id: int) -> None:
        self._tokenizer = tokenizer
        self._end_id = end_id
        self._end_text: str = tokenizer.convert_ids_to_tokens(end_id)
        self._known: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def encode(self, messages: Sequence[Message], tools: Sequence[Message] | None) -> tuple[int, ...]:
        """The prompt ids for the model's next turn after `messages`."""
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
        self, messages: Sequence[Message], tools: Sequence[Message] | None, prompt_ids: Sequence[int], reply: Reply
    ) -> None:
        """Keep the ids of a turn, for the request that will continue it."""
        with self._lock:
            self._known[_key([*messages, reply.message], tools)] = (*prompt_ids, *reply.token_ids)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def reply(self, token_ids: Sequence[int]) -> Reply:
        """Decode sampled ids into an assistant message; text that is not a whole call stays text, as in vLLM."""
        text = self._tokenizer.decode(token_ids, skip_special_tokens=True)
        calls = parse_tool_calls(text)
        content = _CALL.sub("", _BARE_CALL.sub("", text)).strip() if calls else text.strip()
        message: Message = {"role": "assistant", "content": content or None}
        if calls:
            message["tool_calls"] = calls
        return Reply(message, tuple(token_ids))

    def _tail(self, full: str, head: str) -> str | None:
        """What follows the end token of the last known turn in the rendered text; None if history was rewritten."""
        if not full.startswith(head) or self._end_text not in head:
            return None
        return head.rpartition(self._end_text)[2] + full[len(head) :]

    def _render(self, messages: Sequence[Message], tools: Sequence[Message] | None, *, prompt: bool) -> str:
        text: str = self._tokenizer.apply_chat_template(
            [_for_template(m) for m in messages], tools=tools or None, add_generation_prompt=prompt, tokenize=False
        )
        return text

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def parse_tool_calls(text: str) -> list[Message]:
    """The tool calls in `text` (Hermes style, as vLLM's `hermes` parser reads them), in OpenAI's form.

    A block that is not a JSON object with a string `name` and an object `arguments` is not a call. A text that is
    nothing but such an object, bare or in a code fence, counts too: models trained on code write calls like that.
    """
    calls = []
    for source in [match.group(1) for match in _CALL.finditer(text)] or _BARE_CALL.findall(text):
        try:
            body = json.loads(source)
        except ValueError:
            continue
        name, arguments = body.get("name"), body.get("arguments")
        if isinstance(name, str) and isinstance(arguments, dict):
            function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
            calls.append({"id": f"call_{uuid.uuid4().hex[:20]}", "type": "function", "function": function})
    return calls


def text_of(content: Any) -> str:
    """The text of an OpenAI message content: a string, a list of parts, or nothing."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def opening(messages: Sequence[Message], tools: Sequence[Message] | None) -> str:
    """A name for how a conversation begins (what was said before the model's first turn), as a hexadecimal digest."""
    said = itertools.takewhile(lambda m: m["role"] != "assistant", messages)
    return hashlib.sha256(_key(list(said), tools).encode()).hexdigest()


def _for_template(message: Message) -> Message:
    clean: Message = {"role": message["role"], "content": text_of(message.get("content"))}
    if message.get("tool_calls"):
        clean["tool_calls"] = [
            {"type": "function", "function": {"name": c["function"]["name"], "arguments": _arguments(c)}}
            for c in message["tool_calls"]
        ]
    return clean


def _arguments(call: Message) -> Any:
    raw = call["function"]["arguments"]
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def _key(messages: Sequence[Message], tools: Sequence[Message] | None) -> str:
    """Identity of a conversation: only what survives a round trip through any OpenAI client."""
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
