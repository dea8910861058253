"""Ask a teacher model about each question: whether to keep it, or which facts its prose reference states.

Requests run in parallel. Each reply is written to disk at once, so that no request is paid twice after a restart.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from sql_agent.database import Database
from sql_agent.errors import ConfigError, DataError, JudgeCutOffError, JudgeError, JudgeRefusedError, SqlAgentError
from sql_agent.reward.judges.client import JudgeClient
from sql_agent.reward.judges.items import is_prose
from sql_agent.reward.judges.prompt_parts import json_string, render
from sql_agent.schemas import Lang, Question, Record, Usage
from sql_agent.system.files import append_line, drop_cut_line, prompt_file, whole_lines
from sql_agent.system.messages import first_problem

DEFAULT_RUBRIC = prompt_file(__file__, "filter_rubric.txt")
_DECIDE_AGAIN = 'That is not a JSON object of the form {"reason": "…", "keep": true}. Reply with it and nothing else.'
_GIVE_FACTS_AGAIN = 'That is not a JSON object of the form {"facts": ["…"]}. Reply with it and nothing else.'
_SHOWN = ("question", "answer", "sql", "evidence", "task_type")  # fields of a question in the request for a decision
_SEPARATORS: dict[Lang, str] = {"en": "; ", "zh": "；"}
_MAX_SOURCE_CHARS = 4000  # maximum for all texts to quote from in one request


class Entry(Record):
    """Base of a log entry: the id of the question or table, and a digest of question, prompt and teacher model."""

    id: str
    digest: str


class WithId(Protocol):
    @property
    def id(self) -> str: ...


AnyEntry = TypeVar("AnyEntry", bound=WithId)
Asked = TypeVar("Asked", bound=WithId)


class ProgressLog(Generic[AnyEntry]):
    """A JSONL file with one entry for each finished question."""

    def __init__(self, path: Path, kind: type[AnyEntry]) -> None:
        """Create or read `path` and drop an incomplete last line."""
        self.path = path
        self.entries: dict[str, AnyEntry] = {}
        self._adapter = TypeAdapter(kind)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            drop_cut_line(path)
            lines = whole_lines(path)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot write {path}: {error}", hint="choose another place with --out") from error
        for number, line in enumerate(lines, 1):
            try:
                entry = self._adapter.validate_json(line)
            except ValidationError as error:
                what = first_problem(error)
                raise DataError(f"{path}, line {number}: {what}", hint="delete the file to start again") from None
            self.entries[entry.id] = entry

    def find(self, asked: WithId, digest: str) -> AnyEntry | None:
        entry = self.entries.get(asked.id)
        if isinstance(entry, Entry) and entry.digest != digest:
            raise ConfigError(
                f"{self.path} belongs to other questions, prompts or another teacher model: the entry of "
                f"{entry.id} differs from the current request",
                hint="repeat the earlier command, choose another place with --out, or delete the file",
            )
        return entry

    def add(self, entry: AnyEntry) -> None:
        self.entries[entry.id] = entry
        append_line(self.path, self._adapter.dump_json(entry).decode())


@dataclass
class TeacherRun:
    """Sends requests to the teacher, `at_once` in parallel, and counts finished and failed questions and the cost."""

    at_once: int
    on_done: Callable[[int], None]
    done: int = 0
    failed: dict[str, JudgeError] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)

    async def ask_each(self, questions: Sequence[Asked], ask: Callable[[Asked], Awaitable[Usage]]) -> None:
        """Call `ask` for each question (or table). `ask` must log the reply and return the cost.

        A question with a refused request or a truncated reply is added to `failed`. After any other error no further
        request is sent; once the running requests have ended, the first such error is raised.
        """
        waiting = iter(questions)
        stopped: list[SqlAgentError] = []

        async def work() -> None:
            while not stopped and (question := next(waiting, None)) is not None:
                try:
                    spent = await ask(question)
                    self.usage += spent  # not += await …, which would read `usage` before the await
                except SqlAgentError as error:
                    if isinstance(error, JudgeError):
                        self.usage += error.usage or Usage()
                    if isinstance(error, JudgeRefusedError | JudgeCutOffError):
                        self.failed[question.id] = error
                    else:
                        stopped.append(error)
                        return
                self.done += 1
                self.on_done(self.done)

        await asyncio.gather(*(work() for _ in range(self.at_once)))
        if stopped:
            raise stopped[0]


def digest_of(model: str, *asked: str) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of the name `model` and the texts `asked`."""
    return hashlib.sha256("\0".join((model, *asked)).encode()).hexdigest()[:16]


# The JSON schemas of this class and of FactList, docstrings included, are part of the requests.
class Choice(Record):
    """Holds the model's reply."""

    reason: str
    keep: bool


class Decision(Entry):
    """A log entry of `decide`: the question's text, whether the question is kept, and the reason."""

    question: str
    keep: bool
    reason: str


async def decide(question: Question, client: JudgeClient, rubric: str) -> tuple[Decision, Usage]:
    """Ask the teacher to keep or drop `question` by `rubric`; return the decision and the cost."""
    choice, usage = await client.ask(_decision_prompt(question, rubric), Choice, repair=_DECIDE_AGAIN)
    made = {"digest": decision_digest(question, client, rubric), "question": question.question}
    return Decision(id=question.id, **made, keep=choice.keep, reason=choice.reason), usage


def decision_digest(question: Question, client: JudgeClient, rubric: str) -> str:
    return digest_of(client.model, question.model_dump_json(), _decision_prompt(question, rubric))


def _decision_prompt(question: Question, rubric: str) -> str:
    shown = {name: value for name, value in question.model_dump(mode="json").items() if name in _SHOWN and value}
    values = {"rubric": rubric.strip(), "entry": json.dumps(shown, ensure_ascii=False)}
    return render(prompt_file(__file__, "filter.txt"), values)


class FactList(Record):
    """Holds the teacher's reply."""

    facts: tuple[str, ...]


class Rewritten(NamedTuple):
    """A question whose reference consists of facts, or is still prose because of `problem`; and the cost."""

    question: Question
    problem: str
    usage: Usage


async def facts_of_prose(question: Question, client: JudgeClient, database: Database | None) -> Rewritten:
    """Have the teacher replace a prose reference by facts. Facts that are no verbatim quotes are requested once more.

    Facts are quoted from the evidence and, with a `database`, from the cells of the gold SQL's result. If the teacher
    refuses, the prose stays.
    """
    sources = _sources(question, database)
    if not sources:
        return Rewritten(question, "there are neither evidence nor rows of the gold SQL to quote from", Usage())
    prompt, usage, complaint = _facts_prompt(question, sources), Usage(), ""
    for _ in range(2):
        try:
            reply, spent = await client.ask(prompt + complaint, FactList, repair=_GIVE_FACTS_AGAIN)
        except (JudgeRefusedError, JudgeCutOffError) as error:
            return Rewritten(question, error.message, usage + (error.usage or Usage()))
        usage += spent
        facts = list(dict.fromkeys(fact.strip().rstrip(".。").strip() for fact in reply.facts if fact.strip()))
        wrong = _wrong_facts(facts, sources, question.lang)
        if facts and not wrong:
            answer = _SEPARATORS[question.lang].join(facts)
            return Rewritten(question.model_copy(update={"answer": answer}), "", usage)
        complaint = (
            f"\nYour last reply was {json_string(reply.model_dump_json())}, but {_complaint(wrong)}. Reply again."
        )
    return Rewritten(question, f"the teacher's facts cannot be used: {_complaint(wrong)}", usage)


def _sources(question: Question, database: Database | None) -> list[str]:
    """Return the texts to quote from, evidence first, with at most _MAX_SOURCE_CHARS characters in total."""
    texts = [item.quote for item in question.evidence]
    if database is not None:
        answers = [database.query(sql) for sql in question.statements]
        texts += [str(cell) for a in answers for record in a.records for cell in record if cell is not None]
    kept: list[str] = []
    total = 0
    for text in dict.fromkeys(texts):
        total += len(text)
        if text.strip() and (not kept or total <= _MAX_SOURCE_CHARS):
            kept.append(text)
    return kept


def _facts_prompt(question: Question, sources: Sequence[str]) -> str:
    values = {
        "question": json_string(question.question),
        "reference": json_string(question.answer),
        "sources": "\n".join(map(json_string, sources)),
    }
    return render(prompt_file(__file__, f"facts.{question.lang}.txt"), values)


def _wrong_facts(facts: Sequence[str], sources: Sequence[str], lang: Lang) -> list[tuple[str, str]]:
    wrong = []
    for fact in facts:
        if not any(fact in source for source in sources):
            wrong.append((fact, "is not a verbatim part of a source"))
        elif is_prose(fact, lang):
            wrong.append((fact, "is several sentences or lines: give each by itself"))
    return wrong


def _complaint(wrong: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"{json_string(fact)} {why}" for fact, why in wrong[:5]) or "it has no fact"
