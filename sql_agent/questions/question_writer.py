"""Have a teacher model reword a question as a person would ask it, and prove that the meaning is unchanged.

A new wording is used if it passes the checks of `rewrite_checks.py` and the proof: the teacher, given only this wording
and the rows of the gold SQL, gives an answer with full marks from the judge "facts".
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sql_agent.database import Database, Naming
from sql_agent.database.conditions import conditions, only_table, where_of
from sql_agent.database.guard import parse
from sql_agent.database.schema import fold
from sql_agent.errors import JudgeError
from sql_agent.questions.question_check import gold_calls
from sql_agent.questions.rewrite_checks import Half, Problem, TaskChecks, UsedTexts, cheap_problem, kept_texts
from sql_agent.questions.teacher import Entry, digest_of, prompt_file
from sql_agent.reward.judges.base import JudgeCase
from sql_agent.reward.judges.client import JudgeClient
from sql_agent.reward.judges.facts import FactsJudge
from sql_agent.reward.judges.items import Reader, Words
from sql_agent.reward.judges.prompt_parts import json_string, render
from sql_agent.schemas import Lang, QueryAnswer, QueryCall, Question, Record, Usage

_FULL_MARKS = 1.0 - 1e-9
_NO_WHOLE_ROWS = ("group", "having", "limit", "offset", "distinct")  # a statement with one of these stays unchanged
_REPAIR = 'That is not a JSON object of the form {{"{field}": "…"}}. Reply with it and nothing else.'


# The JSON schemas of these two, docstrings included, are part of the requests.
class NewText(Record):
    """Holds the teacher's reply to the first request."""

    question: str


class GivenAnswer(Record):
    """Holds the teacher's reply to the second request."""

    answer: str


class Rewriting(Entry):
    """A log entry: the original text, the new text, and why the new text was rejected, if so."""

    original: str
    text: str
    problem: Problem | None = None


@dataclass(frozen=True)
class QuestionWriter:
    """Rewords questions about one database.

    `namings` are the name columns and aliases of each table. `words` and `checks` belong to the task. `used` collects
    the accepted texts.
    """

    client: JudgeClient
    database: Database
    namings: Mapping[str, Naming]
    words: Mapping[Lang, Words]
    checks: TaskChecks
    used: UsedTexts

    @cached_property
    def _judge(self) -> FactsJudge:
        return FactsJudge(self.words)

    def digest(self, question: Question, half: Half) -> str:
        return digest_of(self.client.model, question, _writing_prompt(question, half))

    async def rewrite(self, question: Question, half: Half) -> tuple[Rewriting, Usage]:
        """Request a new text, then an answer that proves its meaning; return the log entry and the cost.

        A text that passes the checks without a model is added to `used`. Raises JudgeError when the teacher is
        unavailable, refuses, or does not reply with the requested JSON.
        """
        text, problem, usage = await self._rewrite(question, half)
        digest = self.digest(question, half)
        entry = Rewriting(id=question.id, digest=digest, original=question.question, text=text, problem=problem)
        return entry, usage

    async def _rewrite(self, question: Question, half: Half) -> tuple[str, Problem | None, Usage]:
        calls = await self.database.in_thread(gold_calls, question, self.database)
        if wrong := next((call.answer for call in calls if call.answer.error or call.answer.truncated), None):
            return "", Problem("rows", wrong.error.message if wrong.error else "too many rows"), Usage()
        reply, usage = await self.client.ask(
            _writing_prompt(question, half),
            NewText,
            repair=_REPAIR.format(field="question"),
        )
        text, kept = reply.question.strip(), kept_texts(question)
        reader = Reader(self.words[question.lang])
        problem = cheap_problem(question, text, reader, self.checks) or self.used.problem(text, kept, half)
        if problem:
            return text, problem, usage
        self.used.add(text, kept, half)
        rewritten = question.model_copy(update={"question": text})
        refused = reader.is_refusal(question.answer)
        rows = await self.database.in_thread(whole_rows, calls, self.database, self.namings, unanswerable=refused)
        try:
            given, spent = await self.client.ask(
                self._answering_prompt(rewritten, rows),
                GivenAnswer,
                repair=_REPAIR.format(field="answer"),
            )
        except JudgeError as error:
            error.usage = usage + (error.usage or Usage())
            raise
        return text, await self._proof_problem(rewritten, given.answer, calls), usage + spent

    def _answering_prompt(self, question: Question, rows: Sequence[str]) -> str:
        """Return the prompt of the second request: the text and the rows, without reference and gold SQL."""
        values = {
            "refusal": self.words[question.lang].refusals[0],
            "rows": "\n".join(rows) or "[]",
            "question": json_string(question.question),
        }
        return render(prompt_file(f"answer.{question.lang}.txt"), values)

    async def _proof_problem(self, question: Question, answer: str, calls: tuple[QueryCall, ...]) -> Problem | None:
        """Return why `answer` does not earn full marks, or None. All evidence counts as read."""
        case = JudgeCase(question=question, answer=answer, calls=calls, evidence_read=question.evidence or None)
        verdict = await self._judge.grade(case)
        if verdict.score >= _FULL_MARKS:
            return None
        return Problem("answered otherwise", f"{answer[:120]!r}: {verdict.reason}")


def _writing_prompt(question: Question, half: Half) -> str:
    kept = kept_texts(question)
    values = {
        "voice": _voice(question, half),
        "kept": "\n".join(map(json_string, kept)) or "[]",
        "question": json_string(question.question),
    }
    return render(prompt_file(f"rewrite.{question.lang}.txt"), values)


def _voice(question: Question, half: Half) -> str:
    """Return a persona chosen by the question's id, because a model at temperature 0 always invents the same one."""
    voices = tomllib.loads(prompt_file("voices.toml"))[question.lang][half]
    number = int.from_bytes(hashlib.sha256(question.id.encode()).digest()[:8], "big")
    return str(voices[number % len(voices)])


def whole_rows(
    calls: tuple[QueryCall, ...], database: Database, namings: Mapping[str, Naming], *, unanswerable: bool
) -> list[str]:
    """Return the distinct rows of the gold statements as JSON objects, if possible with all columns of the table.

    With all columns, only the question's text determines which column is meant. A count becomes the counted rows. The
    result of a join, of a GROUP BY, or with whole rows beyond the limits of `database` stays unchanged. The gold SQL of
    an `unanswerable` question finds nothing; then the row with the name in the statement is returned.
    """
    lines = []
    for call in calls:
        whole = _whole_statement(call.sql, database, namings, unanswerable=unanswerable)
        answer = database.query(whole) if whole else call.answer
        lines += list(_lines(call.answer if answer.error or answer.truncated else answer))
    return list(dict.fromkeys(lines))


def _whole_statement(sql: str, database: Database, namings: Mapping[str, Naming], *, unanswerable: bool) -> str | None:
    tree = parse(sql, database.dialect)
    table = only_table(tree, database.schema)
    if table is None or any(tree.args.get(part) for part in _NO_WHOLE_ROWS):
        return None
    where = where_of(tree, database.dialect)
    if unanswerable:
        column = fold(namings[table].column)
        by_name = [
            c.sql
            for c in conditions(tree, database.schema, database.dialect)
            if any(t.column == column for t in c.texts)
        ]
        where = f"WHERE {' AND '.join(f'({condition})' for condition in by_name)}" if by_name else where
    return f"SELECT * FROM {table} {where}"


def _lines(answer: QueryAnswer) -> Iterator[str]:
    for record in answer.records:
        yield json.dumps(dict(zip(answer.columns, record, strict=True)), ensure_ascii=False)
