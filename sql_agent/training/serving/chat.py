"""Convert chat messages into token ids and back; the sampled ids of earlier turns are reused exactly."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError

from sql_agent.config.endpoints import plain_schema
from sql_agent.errors import ModelError
from sql_agent.training.serving.tool_format import FORMATS, MARKS, Call, has_open_thought, parse_reply

JsonObject = dict[str, Any]  # a message, a tool or a tool call in the format of OpenAI's API
Messages = Sequence[JsonObject]
Tools = Sequence[JsonObject] | None
Ids = tuple[int, ...]  # token ids
CALL_ID = "0" * 9  # the id of every call in demonstrations, so that a demonstration always has the same tokens
_REMEMBERED = 2048  # maximum number of turns whose ids are kept
_EMPTY_THOUGHT = re.compile(r"<think>\s*</think>\s*")
_PROBE_TOOL: JsonObject = {"name": "find_rows", "description": "Find rows.", "parameters": {"type": "object"}}


class ChatEncoder:
    """Renders conversations with one tokenizer, whose end token has the id `end_id`, and parses the model's turns.

    `tool_format` is the format of the model's tool calls; "auto" detects the format from the chat template.

    Encoding decoded ids again can give other ids, and some templates rewrite earlier turns. So `remember` keeps the ids
    of each turn, and `encode` reuses these ids.
    """

    def __init__(self, tokenizer: Any, end_id: int, tool_format: str = "auto") -> None:
        self._tokenizer = tokenizer
        self._end_id = end_id
        self._end_text: str = tokenizer.convert_ids_to_tokens(end_id)
        special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        kept = {tokenizer.convert_tokens_to_ids(mark) for mark in MARKS}
        self._dropped = (special | set(tokenizer.all_special_ids)) - kept
        self._known: OrderedDict[str, tuple[Ids, str]] = OrderedDict()  # {key of a conversation: ids, last thought}
        self._has_thoughts = False
        self._thinks: bool | None = None  # whether the model thinks by default; None before `thinks` computes it
        self._lock = threading.Lock()
        self._cached_ids = lru_cache(maxsize=256)(self._ids)
        # "hermes" if no format is detected; `load_tokenizer` rejects such a model.
        self.tool_format = tool_format if tool_format != "auto" else self.find_tool_format() or "hermes"

    def encode(self, messages: Messages, tools: Tools, thinking: bool | None = None) -> Ids:
        """Return the prompt ids for the model's next turn after `messages`, with the sampled ids of earlier turns.

        `thinking` is the template's argument `enable_thinking`; None selects the template's default.
        """
        messages = self._with_thoughts(messages, tools)
        full = self._render(messages, tools, prompt=True, thinking=thinking)
        for end in range(len(messages), 0, -1):
            head = messages[:end]
            if head[-1]["role"] == "assistant" and (seen := self._remembered(head, tools)[0]):
                tail = self._tail(full, self._render(head, tools, prompt=False, thinking=thinking))
                if tail is not None:
                    closed = seen if seen[-1] == self._end_id else (*seen, self._end_id)
                    return closed + self._ids(tail)
        system, mark, rest = full.partition(self._end_text)  # conversations share `system`
        return self._cached_ids(system + mark) + self._ids(rest)

    def _remembered(self, messages: Messages, tools: Tools) -> tuple[Ids, str]:
        with self._lock:
            return self._known.get(_key(messages, tools), ((), ""))

    def remember(self, messages: Messages, tools: Tools, token_ids: Ids) -> None:
        """Keep `token_ids`, the ids of the conversation `messages`, whose last message is a turn of the model."""
        thought = messages[-1].get("reasoning_content") or ""
        self._has_thoughts = self._has_thoughts or bool(thought)
        with self._lock:
            self._known[_key(messages, tools)] = token_ids, thought
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def reply(self, token_ids: Sequence[int], prompt_ids: Sequence[int] = ()) -> JsonObject:
        """Decode sampled ids into an assistant message; an incomplete tool call stays in the text, as in vLLM.

        A thought becomes the field `reasoning_content`. The turn's prompt `prompt_ids` may end with `<think>`.
        """
        parsed = parse_reply(self._decode(token_ids), self.tool_format, thought_open=self._opens_thought(prompt_ids))
        message: JsonObject = {"role": "assistant", "content": parsed.content or None}
        if parsed.thought:
            message["reasoning_content"] = parsed.thought
        if parsed.calls:
            message["tool_calls"] = [_tool_call(call) for call in parsed.calls]
        return message

    def closing_ids(self, token_ids: Sequence[int], prompt_ids: Sequence[int]) -> Ids:
        """Return the ids that close an open thought in `token_ids`, sampled after `prompt_ids`; () if none is open."""
        text = self._decode(token_ids)
        is_open = has_open_thought(text, thought_open=self._opens_thought(prompt_ids))
        return self._ids("\n</think>\n\n") if is_open else ()

    def _decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode([i for i in token_ids if i not in self._dropped]))

    def _opens_thought(self, prompt_ids: Sequence[int]) -> bool:
        return bool(prompt_ids) and str(self._tokenizer.decode(prompt_ids[-8:])).rstrip().endswith("<think>")

    def count_tokens(self, text: str) -> int:
        return len(self._ids(text)) if text else 0

    def thinks(self, thinking: bool | None) -> bool:
        """Return whether the model thinks when the template gets `enable_thinking=thinking` (see `encode`)."""
        if thinking is not None:
            return thinking
        if self._thinks is None:
            asked = [{"role": "user", "content": "Which?"}]
            default, on, off = (self._render(asked, None, prompt=True, thinking=each) for each in (None, True, False))
            self._thinks = (default == on and on != off) or default.rstrip().endswith("<think>")
        return self._thinks

    def turn_ids(self, messages: Messages, turn: JsonObject, tools: Tools, thinking: bool | None = None) -> Ids:
        """Return the ids of the assistant message `turn` after `messages`, with the end token; see `turn_text`."""
        return (*self._ids(self.turn_text(messages, turn, tools, thinking)), self._end_id)

    def turn_text(self, messages: Messages, turn: JsonObject, tools: Tools, thinking: bool | None = None) -> str:
        """Return the text, without the end token, that the model would sample to write the message `turn`.

        If the template does not render the thought of `turn`, the text begins with the thought. Raises ModelError when
        the conversation with `turn` does not begin with the prompt.
        """
        prompt = self._render(messages, tools, prompt=True, thinking=thinking)
        whole = self._render([*messages, turn], tools, prompt=False, thinking=thinking)
        if not whole.startswith(prompt):
            raise ModelError(
                "the chat template renders a prompt that is not the start of the conversation with the next turn",
                hint="give another template with agent.chat_template=FILE, or set sft.steps=0",
            )
        text = whole[len(prompt) :]
        text = text.rpartition(self._end_text)[0] if self._end_text in text else text.rstrip()
        thought = turn.get("reasoning_content") or ""
        return text if thought in text else f"<think>\n{thought}\n</think>\n\n{text}"

    def find_tool_format(self) -> str | None:
        """Return the first format whose parser reads a call that the chat template rendered, or None."""
        probe = Call("find_rows", {"sql": 'SELECT "a" FROM b WHERE c < 3'})
        question: JsonObject = {"role": "user", "content": "Which?"}
        try:
            text = self.turn_text([question], call_message(probe), [{"type": "function", "function": _PROBE_TOOL}])
        except (ModelError, TemplateError):
            return None
        return next((name for name in FORMATS if parse_reply(text, name).calls == (probe,)), None)

    def _tail(self, full: str, head: str) -> str | None:
        """Return the part of the conversation `full` after the last end token of its start `head`.

        Returns None if `full` does not begin with `head` (the template rewrote it), or if `head` has no end token. An
        empty thought, which Qwen3's template writes only into the last turn, is ignored.
        """
        if self._end_text not in head:
            return None
        if not full.startswith(head):
            prompt = _EMPTY_THOUGHT.search(full, full.rfind(self._end_text))
            body, prompt_text = (full[: prompt.start()], full[prompt.start() :]) if prompt else (full, "")
            full, head = _EMPTY_THOUGHT.sub("", body) + prompt_text, _EMPTY_THOUGHT.sub("", head)
        if not full.startswith(head):
            return None
        return head.rpartition(self._end_text)[2] + full[len(head) :]

    def _with_thoughts(self, messages: Messages, tools: Tools) -> list[JsonObject]:
        """Add the thoughts of remembered turns to `messages`, because clients do not send thoughts back."""
        complete = list(messages)
        if not self._has_thoughts:
            return complete
        for index, message in enumerate(messages):
            if message["role"] == "assistant" and (thought := self._remembered(messages[: index + 1], tools)[1]):
                complete[index] = message | {"reasoning_content": thought}
        return complete

    def _render(self, messages: Messages, tools: Tools, *, prompt: bool, thinking: bool | None) -> str:
        options = {} if thinking is None else {"enable_thinking": thinking}
        shown = [_for_template(m) for m in messages]
        offered = plain_schema(tools) if tools else None
        render = self._tokenizer.apply_chat_template
        return str(render(shown, tools=offered, add_generation_prompt=prompt, tokenize=False, **options))

    def _ids(self, text: str) -> Ids:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def call_message(call: Call) -> JsonObject:
    """Return an assistant message with only `call`; its id is CALL_ID, because Mistral's templates render the id."""
    return {"role": "assistant", "content": "", "tool_calls": [_tool_call(call) | {"id": CALL_ID}]}


def _tool_call(call: Call) -> JsonObject:
    """Convert `call` into OpenAI's format, with a random id of nine characters, as Mistral's templates require."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    function = {"name": _encodable(call.name), "arguments": _encodable(arguments)}
    return {"id": uuid.uuid4().hex[:9], "type": "function", "function": function}


def _encodable(text: str) -> str:
    """Replace lone surrogates, such as \\ud83d in JSON, by "?", because UTF-8 cannot encode them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def text_of(content: Any) -> str:
    """Return the text of a message's `content`, which is a string, a list of parts, or None."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def conversation_id(messages: Messages, tools: Tools) -> str:
    """Return a digest of the tools and the messages before the model's first turn."""
    first = itertools.takewhile(lambda m: m["role"] != "assistant", messages)
    return hashlib.sha256(_key(list(first), tools).encode()).hexdigest()


def _for_template(message: JsonObject) -> JsonObject:
    clean: JsonObject = {"role": message["role"], "content": text_of(message.get("content"))}
    clean |= {key: message[key] for key in ("reasoning_content", "tool_call_id") if message.get(key)}
    if message.get("tool_calls"):
        clean["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["function"]["name"], "arguments": _arguments(c)}}
            for c in message["tool_calls"]
        ]
    return clean


def _arguments(call: JsonObject) -> Any:
    raw = call["function"]["arguments"]
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw


def _key(messages: Messages, tools: Tools) -> str:
    """Return the key of a conversation: JSON of the fields that every OpenAI client sends back unchanged."""
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
