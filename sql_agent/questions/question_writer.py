"""Have a teacher model reword a question as a person would ask it, and check by execution that the meaning is the same.

A new wording is used if it passes the checks of `rewrite_checks.py`, and if the teacher, given only this wording and
the tables, writes a statement that earns full marks from the judge "facts": the statement reads the evidence, and its
rows give the reference.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sql_agent.database import Database, Naming
from sql_agent.database.provenance import judge_case
from sql_agent.errors import JudgeError
from sql_agent.questions.rewrite_checks import Half, NamesIn, Problem, UsedTexts, cheap_problem, kept_texts
from sql_agent.questions.teacher import Entry, digest_of
from sql_agent.reward.judges.client import Form, JudgeClient
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.reward.judges.items import Reader, Words
from sql_agent.reward.judges.prompt_parts import json_string, render
from sql_agent.schemas import Lang, QueryCall, Question, Record, Usage, facts_of
from sql_agent.system.files import prompt_file

_FULL_MARKS = 1.0 - 1e-9
MOST_WORDINGS = 5  # maximum; there are six voices for the split test
_MOST_STATEMENTS = 2  # maximum; the second statement follows an error or a hint
_REPAIR = "That is not a JSON object of the form {form}. Reply with it and nothing else."


# The JSON schemas of the next three classes, docstrings included, are part of the requests.
class NewTexts(Record):
    """Holds the questions."""

    questions: tuple[str, ...]


class GivenStatement(Record):
    """Holds the statement, or an empty text where no table has what is asked for."""

    sql: str


class GivenAnswer(Record):
    """Holds the answer."""

    answer: str


class TriedText(Record):
    """A new text, and the problem for which the text was rejected; None if it was accepted."""

    text: str
    problem: Problem | None = None


class Rewriting(Entry):
    """A log entry: the original text and the new texts."""

    original: str
    tried: tuple[TriedText, ...]

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.tried if each.problem is None]


@dataclass
class _Requests:
    """The requests about one question, and their cost."""

    client: JudgeClient
    usage: Usage

    async def ask(
        self, prompt: str, form: type[Form], shown: str, accepts: Callable[[Form], bool] = lambda _: True
    ) -> Form:
        """Return the reply, parsed by the pydantic model `form`. The retry after a wrong reply shows `shown`."""
        try:
            reply, spent = await self.client.ask(prompt, form, repair=_REPAIR.format(form=shown), accepts=accepts)
        except JudgeError as error:
            error.usage = self.usage + (error.usage or Usage())
            raise
        self.usage += spent
        return reply


@dataclass(frozen=True)
class QuestionWriter:
    """Rewords questions about one database.

    `wordings` is how many texts are requested for a question, MOST_WORDINGS at most. `tables` describe the database to
    the teacher, by language. `namings` are the name columns and aliases of each table. `words` are the task's words by
    language. `names_in` finds names of rows in a text. `used` collects the texts that pass `rewrite_checks.py`.
    """

    client: JudgeClient
    database: Database
    wordings: int
    tables: Mapping[Lang, str]
    namings: Mapping[str, Naming]
    words: Mapping[Lang, Words]
    names_in: NamesIn
    used: UsedTexts

    @cached_property
    def _judge(self) -> FactsJudge:
        return FactsJudge(self.words)

    def digest(self, question: Question, half: Half) -> str:
        prompt = self._writing_prompt(question, half)
        return digest_of(self.client.model, question.model_dump_json(), prompt, self.tables[question.lang])

    async def rewrite(self, question: Question, half: Half, most: int) -> tuple[Rewriting, Usage]:
        """Request new texts, and for each text a statement that shows its meaning; return the log entry and the cost.

        Once `most` texts are accepted, the others are not checked.
        """
        requests, tried = _Requests(self.client, Usage()), list[TriedText]()
        prompt = self._writing_prompt(question, half)
        reply = await requests.ask(
            prompt, NewTexts, '{"questions": ["…"]}', lambda reply: len(reply.questions) == self.wordings
        )
        for text in map(str.strip, reply.questions):
            tried.append(TriedText(text=text, problem=await self._problem(question, text, half, requests)))
            if sum(each.problem is None for each in tried) == most:
                break
        digest = self.digest(question, half)
        entry = Rewriting(id=question.id, digest=digest, original=question.question, tried=tuple(tried))
        return entry, requests.usage

    async def _problem(self, question: Question, text: str, half: Half, requests: _Requests) -> Problem | None:
        reader, kept = Reader(self.words[question.lang]), kept_texts(question)
        problem = cheap_problem(question, text, reader, self.names_in) or self.used.problem(text, kept, half)
        if problem is not None:
            return problem
        self.used.add(text, kept, half)
        return await self._meaning_problem(question.model_copy(update={"question": text}), reader, requests)

    async def _meaning_problem(self, question: Question, reader: Reader, requests: _Requests) -> Problem | None:
        """Return why the teacher's statement for the new text does not give the reference; None if it does."""
        calls = await self._look_up(question, requests)
        if calls and (error := calls[-1].answer.error):
            return _answered_otherwise(calls, error.message)
        found = calls[-1] if calls and _finds_something(calls[-1]) else None
        if reader.is_refusal(question.answer):
            answer = await self._read_off(question, found, requests) if found else question.answer
            return None if reader.is_refusal(answer) else _answered_otherwise(calls, answer)
        if found is None:
            return _answered_otherwise(calls, "no rows")
        answer = await self._read_off(question, found, requests)
        case = await self.database.in_thread(judge_case, question, answer, calls, self.database, self.namings, reader)
        verdict = await self._judge.grade(case)
        return (
            None if verdict.score >= _FULL_MARKS else _answered_otherwise(calls, f"{answer[:120]!r}: {verdict.reason}")
        )

    async def _look_up(self, question: Question, requests: _Requests) -> list[QueryCall]:
        """Run the teacher's statement, and a second statement if the first fails or the database gives a hint."""
        calls: list[QueryCall] = []
        while len(calls) < _MOST_STATEMENTS:
            values = {
                "tables": self.tables[question.lang],
                "dialect": self.database.dialect.title,
                "before": "\n".join(map(_line, calls)) or "[]",
                "question": json_string(question.question),
            }
            reply = await requests.ask(
                render(prompt_file(__file__, f"statement.{question.lang}.txt"), values), GivenStatement, '{"sql": "…"}'
            )
            if not reply.sql.strip():
                break
            answer = await self.database.in_thread(self.database.query, reply.sql)
            calls.append(QueryCall(sql=reply.sql, answer=answer, seconds=0.0))
            if not answer.hint and not answer.error:
                break
        return calls

    async def _read_off(self, question: Question, found: QueryCall, requests: _Requests) -> str:
        """Return the reference if its facts are the cells of `found`, none optional, else the teacher's answer."""
        cells = [str(cell) for record in found.answer.records for cell in record if cell is not None]
        if question.enough is None and sorted(cells) == sorted(facts_of(question.answer)):
            return question.answer
        values = {
            "refusal": self.words[question.lang].refusals[0],
            "rows": "\n".join(_rows(found)),
            "question": json_string(question.question),
        }
        prompt = render(prompt_file(__file__, f"answer.{question.lang}.txt"), values)
        return (await requests.ask(prompt, GivenAnswer, '{"answer": "…"}')).answer

    def _writing_prompt(self, question: Question, half: Half) -> str:
        kept = kept_texts(question)
        values = {
            "voices": "\n".join(_voices(question, half, self.wordings)),
            "kept": "\n".join(map(json_string, kept)) or "[]",
            "question": json_string(question.question),
        }
        return render(prompt_file(__file__, f"rewrite.{question.lang}.txt"), values)


def _voices(question: Question, half: Half, count: int) -> list[str]:
    """Return personas chosen by the question's id: at temperature 0 a model would always invent the same ones."""
    voices = tomllib.loads(prompt_file(__file__, "voices.toml"))[question.lang][half]
    first = int.from_bytes(hashlib.sha256(question.id.encode()).digest()[:8], "big")
    return [voices[(first + place) % len(voices)] for place in range(count)]


def _finds_something(call: QueryCall) -> bool:
    return any(cell is not None for record in call.answer.records for cell in record)


def _rows(call: QueryCall) -> list[str]:
    columns = call.answer.columns
    return [json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in call.answer.records]


def _line(call: QueryCall) -> str:
    answer = call.answer
    said = {"error": answer.error.message} if answer.error else {"rows": answer.count, "hint": answer.hint}
    return json.dumps({"sql": call.sql, **said}, ensure_ascii=False)


def _answered_otherwise(calls: Sequence[QueryCall], what: str) -> Problem:
    return Problem("answered otherwise", "; ".join((*(call.sql for call in calls), what)))
