"""Have a teacher model rewrite a question as somebody would ask it, and prove that it still asks the same.

A rewritten text is used when it passes the checks of `rewrite_checks.py` and when the teacher, shown nothing but this
text and the rows of the gold SQL, gives an answer that earns full marks from the judge "facts" against the reference.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from sql_agent.database import Database, Naming
from sql_agent.errors import JudgeError
from sql_agent.questions.gold_rows import gold_calls, whole_rows
from sql_agent.questions.progress_log import Entry
from sql_agent.questions.rewrite_checks import Half, Problem, TaskChecks, UsedTexts, cheap_problem, kept_texts
from sql_agent.reward.judges.base import JudgeCase
from sql_agent.reward.judges.client import JudgeClient
from sql_agent.reward.judges.facts import FactsJudge
from sql_agent.reward.judges.items import Reader, Words
from sql_agent.reward.judges.prompt_template import quoted, render
from sql_agent.reward.judges.reply import read_reply
from sql_agent.schemas import Lang, QueryCall, Question, Record, Usage

_FULL_MARKS = 1.0 - 1e-9
_REPAIR = 'That is not a JSON object of the form {{"{field}": "…"}}. Reply with it and nothing else.'


class NewText(Record):
    """Holds the teacher's reply to the first request."""

    question: str


class GivenAnswer(Record):
    """Holds the teacher's reply to the second request."""

    answer: str


class Rewriting(Entry):
    """One line of the progress file: the text before and after, and, where the new one cannot be used, why."""

    original: str
    text: str
    problem: Problem | None = None


class Written(NamedTuple):
    """Holds what the teacher wrote, why it cannot be used (None when it can) and what both requests cost."""

    text: str
    problem: Problem | None
    usage: Usage


class QuestionWriter:
    """Rewrites questions about one database; `words` and `checks` are the task's."""

    def __init__(
        self,
        client: JudgeClient,
        database: Database,
        namings: Mapping[str, Naming],
        words: Mapping[Lang, Words],
        checks: TaskChecks,
    ) -> None:
        self._client = client
        self._database = database
        self._namings = namings
        self._words = words
        self._checks = checks
        self._judge = FactsJudge(words)

    def digest(self, question: Question, half: Half) -> str:
        """Return what tells a rewriting from that of another question, in other words of ours or by another model."""
        parts = (self._client.model, question.model_dump_json(), _writing_prompt(question, half))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    async def rewrite(self, question: Question, half: Half, used: UsedTexts) -> Written:
        """Ask for a new text and prove it; a text that gets as far as the proof is taken in `used`.

        Raises JudgeError when the teacher cannot be asked, does not reply in the asked form, or refuses.
        """
        calls = await self._database.in_thread(gold_calls, question, self._database)
        if wrong := next((call.answer for call in calls if call.answer.error or call.answer.truncated), None):
            return Written("", Problem("rows", wrong.error.message if wrong.error else "they are too many"), Usage())
        reply, usage = await self._client.ask(
            _writing_prompt(question, half),
            NewText.model_json_schema(),
            lambda text: read_reply(text, NewText),
            repair=_REPAIR.format(field="question"),
        )
        text, kept = reply.question.strip(), kept_texts(question)
        reader = Reader(self._words[question.lang])
        problem = cheap_problem(question, text, reader, self._checks) or used.problem(text, kept, half)
        if problem:
            return Written(text, problem, usage)
        used.add(text, kept, half)
        rewritten = question.model_copy(update={"question": text})
        refused = reader.is_refusal(question.answer)
        rows = await self._database.in_thread(whole_rows, calls, self._database, self._namings, unanswerable=refused)
        try:
            given, spent = await self._client.ask(
                self._answering_prompt(rewritten, rows),
                GivenAnswer.model_json_schema(),
                lambda text: read_reply(text, GivenAnswer),
                repair=_REPAIR.format(field="answer"),
            )
        except JudgeError as error:
            error.usage = usage + (error.usage or Usage())
            raise
        return Written(text, await self._proof_problem(rewritten, given.answer, calls), usage + spent)

    def _answering_prompt(self, question: Question, rows: Sequence[str]) -> str:
        """Return what shows the text and the rows, and neither the reference nor the gold SQL."""
        values = {
            "refusal": self._words[question.lang].refusals[0],
            "rows": "\n".join(rows) or "[]",
            "question": quoted(question.question),
        }
        return render(_prompt_file(f"answer.{question.lang}.txt"), values)

    async def _proof_problem(self, question: Question, answer: str, calls: tuple[QueryCall, ...]) -> Problem | None:
        """Return what the answer lacks. All evidence counts as read, because the gold SQL was seen to return it."""
        case = JudgeCase(question=question, answer=answer, calls=calls, evidence_read=question.evidence or None)
        verdict = await self._judge.grade(case)
        if verdict.score >= _FULL_MARKS:
            return None
        return Problem("answered otherwise", f"{answer[:120]!r}: {verdict.reason}")


def _writing_prompt(question: Question, half: Half) -> str:
    kept = kept_texts(question)
    values = {
        "voice": _voice(question, half),
        "kept": "\n".join(map(quoted, kept)) or "[]",
        "question": quoted(question.question),
    }
    return render(_prompt_file(f"rewrite.{question.lang}.txt"), values)


def _voice(question: Question, half: Half) -> str:
    """Return who asks, by the question's id, because at temperature 0 a model lets the same person ask again."""
    voices = tomllib.loads(_prompt_file("voices.toml"))[question.lang][half]
    number = int.from_bytes(hashlib.sha256(question.id.encode()).digest()[:8], "big")
    return str(voices[number % len(voices)])


@cache
def _prompt_file(name: str) -> str:
    return files("sql_agent.questions").joinpath("prompts", name).read_text(encoding="utf-8")
