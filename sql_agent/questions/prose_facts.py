"""Turn a prose reference into facts with a teacher model, which must quote each fact from the evidence or a cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sql_agent.database import Database
from sql_agent.errors import JudgeCutOffError, JudgeRefusedError
from sql_agent.questions.teacher import prompt_file
from sql_agent.reward.judges.client import JudgeClient
from sql_agent.reward.judges.items import is_prose
from sql_agent.reward.judges.prompt_parts import json_string, render
from sql_agent.schemas import Lang, Question, Record, Usage

_SEPARATORS: dict[Lang, str] = {"en": "; ", "zh": "；"}
_MAX_SOURCE_CHARS = 4000  # of all sources together, so that a whole table is not sent
_REPAIR = 'That is not a JSON object of the form {"facts": ["…"]}. Reply with it and nothing else.'


class FactList(Record):
    """Holds the teacher's reply."""

    facts: tuple[str, ...]


class Rewritten(NamedTuple):
    """A question whose reference is now facts, or still prose if `problem` is set, and the cost."""

    question: Question
    problem: str
    usage: Usage


async def facts_of_prose(question: Question, client: JudgeClient, database: Database | None) -> Rewritten:
    """Ask the teacher for the facts of a prose reference; ask once more if facts are not verbatim quotes.

    Facts are quoted from the evidence and, with a `database`, from the cells that the gold SQL returns. If the teacher
    refuses, the prose stays. Raises JudgeError when the teacher cannot be asked.
    """
    sources = _sources(question, database)
    if not sources:
        return Rewritten(question, "neither evidence nor rows of gold SQL to take facts from", Usage())
    prompt, usage, complaint = _prompt(question, sources), Usage(), ""
    for _ in range(2):
        try:
            reply, spent = await client.ask(prompt + complaint, FactList, repair=_REPAIR)
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
    """Return the texts to quote from, the evidence first, up to a total number of characters."""
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


def _prompt(question: Question, sources: Sequence[str]) -> str:
    values = {
        "question": json_string(question.question),
        "reference": json_string(question.answer),
        "sources": "\n".join(map(json_string, sources)),
    }
    return render(prompt_file(f"facts.{question.lang}.txt"), values)


def _wrong_facts(facts: Sequence[str], sources: Sequence[str], lang: Lang) -> list[tuple[str, str]]:
    """Return each unusable fact with the reason."""
    wrong = []
    for fact in facts:
        if not any(fact in source for source in sources):
            wrong.append((fact, "does not stand in a source to the letter"))
        elif is_prose(fact, lang):
            wrong.append((fact, "is several sentences or lines: give each by itself"))
    return wrong


def _complaint(wrong: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"{json_string(fact)} {why}" for fact, why in wrong[:5]) or "it has no fact"
