"""Render HTML pages, and pack rollouts for a page: columns to filter by, and compressed blocks of whole records."""

from __future__ import annotations

import base64
import gzip
import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from starlette.responses import HTMLResponse, Response

from sql_agent.rollouts.metrics import ACCURATE
from sql_agent.runs.run_folder import JsonObject
from sql_agent.schemas import Drop, DropCause, Outcome

_SCRIPTS = ("text", "access", "data", "chart", "filter", "list", "rollout", "related", "overview", "main")
_PACKAGE = "sql_agent.runs"
# {value of `Outcome` or `DropCause`: message for people}
MESSAGES = {word.value: word.message for word in (*Outcome, *DropCause)}
_BLOCK = 200  # rollouts in a block; to show one of them, a page decompresses the block in milliseconds
_LEVEL = 6  # gzip's compression level; 9 took three times as long and saved 2 %
_DIGITS = 4  # decimal places
_COLUMNS = (
    "step", "mode", "set", "group", "question", "reward", "judge", "outcome", "dropped", "advantage", "queries",
    "turns", "tokens", "seconds", "failure",
)  # fmt: skip


def render_report(page: Mapping[str, Any], blocks: Sequence[Sequence[bytes]]) -> str:
    """Return the HTML of a report that works offline, with its content security policy in a meta tag.

    `page` has all data except the records of the rollouts. `blocks` has these records: for each run, the result of
    `RolloutPack.blocks`.
    """
    nonce = secrets.token_urlsafe(16)
    return _report(
        nonce=nonce,
        policy=content_policy(nonce),
        title=page["title"],
        disclaimer=page["disclaimer"],
        data=_base64(packed(page)),
        blocks=[[_base64(block) for block in of_run] for of_run in blocks],
    )


def render_live_report(disclaimer: str, nonce: str) -> str:
    """Return the HTML of a report whose scripts request the data from the server; `nonce` allows the scripts."""
    return _report(nonce=nonce, live=True, title="Run", disclaimer=disclaimer)


def content_policy(nonce: str) -> str:
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def packed(page: Mapping[str, Any]) -> bytes:
    """Return `page`, with the constants that the scripts need, as JSON compressed with gzip."""
    known = {"accurate": ACCURATE, "messages": MESSAGES}
    return compressed(json.dumps({**page, **known}, ensure_ascii=False, separators=(",", ":"), default=str))


def dictionary(more: Mapping[str, str]) -> str:
    """Return the Chinese translations for all pages and the translations `more`, as JSON that is safe inside HTML."""
    return json.dumps(json.loads(asset("zh.json")) | dict(more), ensure_ascii=False).replace("<", "\\u003c")


def asset(name: str, package: str = _PACKAGE) -> str:
    return (files(package) / "templates" / name).read_text("utf-8")


def render_template(name: str, package: str = _PACKAGE, **values: Any) -> str:
    """Render the template `name` of `package`; in HTML, `values` are escaped."""
    environment = Environment(loader=PackageLoader(package), autoescape=select_autoescape(("html.j2",)))
    return environment.get_template(name).render(**values)


def _report(**values: Any) -> str:
    return render_template(
        "page.html.j2",
        style=asset("page.css"),
        scripts=[asset(f"{name}.js") for name in _SCRIPTS],
        chinese=dictionary({}),
        **values,
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def page_response(render: Callable[[str], str]) -> Response:
    """Return the HTML of `render(nonce)` for a new nonce, with a content security policy that allows the nonce."""
    nonce = secrets.token_urlsafe(16)
    policy = f"{content_policy(nonce)}; frame-ancestors 'none'"
    return HTMLResponse(render(nonce), headers={"Content-Security-Policy": policy})


class RolloutPack:
    """Collects the rollouts of a run or an evaluation for a page."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self.questions: list[JsonObject] = []
        self._numbers: dict[str, int] = {}  # index into `questions`, by a question's JSON
        self._drops: Counter[str] = Counter()
        self._full: list[bytes] = []
        self._open: list[str] = []  # the JSON records of the unfinished block

    def __len__(self) -> int:
        return len(self.columns["step"])

    def add(self, line: Mapping[str, Any]) -> None:
        """Add a line of rollouts.jsonl; a line in another format raises an error such as KeyError and adds nothing."""
        record = line["record"] or {}
        reward = record.get("reward")
        values = {
            "step": line["step"],
            "mode": line["mode"],
            "set": line.get("val_set"),
            "group": line["group"],
            "question": self._number(record["question"]) if record else None,
            "reward": _rounded(reward["rule"] + reward["judge"]) if reward else None,
            "judge": _rounded(reward.get("criteria", {}).get("absolute", reward["judge"])) if reward else None,
            "outcome": record.get("outcome"),
            "dropped": line["dropped"]["cause"] if line["dropped"] else None,
            "advantage": _rounded(line.get("advantage")),
            "queries": len(record.get("calls", ())),
            "turns": record.get("turns", 0),
            "tokens": record.get("usage", {}).get("completion_tokens", 0),
            "seconds": _rounded(record.get("seconds", 0.0)),
        }
        wrong = values["judge"] is not None and values["judge"] < ACCURATE
        values["failure"] = _failure(record) if wrong else None
        drop = Drop.model_validate(line["dropped"]) if line["dropped"] else None
        for name, value in values.items():
            self.columns[name].append(value)
        if drop:
            self._drops[str(drop)] += 1
        kept = {key: value for key, value in record.items() if key != "question"}
        whole = kept | {"rollout_id": line.get("rollout_id"), "dropped": line["dropped"]}
        whole |= {key: line[key] for key in ("triplets", "sequences") if key in line}
        self._open.append(json.dumps(whole, ensure_ascii=False, separators=(",", ":")))
        if len(self._open) == _BLOCK:
            self._full.append(compressed("\n".join(self._open)))
            self._open.clear()

    def blocks(self) -> list[bytes]:
        """Return the records in blocks: JSON lines of up to 200 records, compressed with gzip."""
        return [*self._full, compressed("\n".join(self._open))] if self._open else list(self._full)

    def index(self) -> JsonObject:
        dropped = self._drops.most_common()
        return {"columns": self.columns, "questions": self.questions, "dropped": dropped, "block_size": _BLOCK}

    def _number(self, question: JsonObject) -> int:
        key = json.dumps(question, ensure_ascii=False, sort_keys=True)
        number = self._numbers.setdefault(key, len(self.questions))
        if number == len(self.questions):
            self.questions.append(question)
        return number


def compressed(text: str) -> bytes:
    """Compress `text` with gzip; equal texts give equal bytes."""
    return gzip.compress(text.encode(), _LEVEL, mtime=0)


def _failure(record: JsonObject) -> str:
    """Return why the answer of `record` may be wrong, judging by the queries, such as "queried nothing"."""
    answers = [call["answer"] for call in record.get("calls", ())]
    found = [answer for answer in answers if answer["status"] == "ok"]
    if record["outcome"] != Outcome.ANSWERED:
        return str(record["outcome"])
    if not answers:
        return "queried nothing"
    if not found:
        return f"every query failed: {answers[-1]['error']['kind']}"
    if not any(answer["count"] for answer in found):
        return "no query found a row"
    if record.get("evidence_read") == [] and record["question"].get("evidence"):
        return "read no row of the evidence"
    return "found rows, gave another answer"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
