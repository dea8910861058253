"""Define the workflows: which roles the model plays for one question, in which order, and with which prompts."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib.resources import files

from agents.exceptions import ModelBehaviorError

from sql_agent.agent.session import AgentSession, Message
from sql_agent.agent.tools import function_tool
from sql_agent.reward.execution_match import statement_in
from sql_agent.schemas import Lang

WRITE, CHECK, REWRITE, ANSWER = "write", "check", "rewrite", "answer"

_VERDICT = re.compile(r"verdict\W{0,5}(right|wrong)", re.IGNORECASE)

Workflow = Callable[[AgentSession], Awaitable[str]]


async def react(session: AgentSession) -> str:
    """Let the model call the tool until it answers; returns the answer."""
    task, question = session.task, session.question
    return await session.ask(
        [user(question.question)],
        system=task.instructions(question.lang, session.database, session.settings),
        tools=[function_tool(session.tool, task.describe_tool(session.database))],
        max_turns=session.settings.agent.max_turns,
    )


async def check_rewrite(session: AgentSession) -> str:
    """Write a statement, run it, check it, and write it again until the check approves it; returns the answer.

    At most `agent.max_turns` statements are written. A statement that fails or gets a hint needs no check, because the
    error or the hint says what to change, and neither does the last one, because nothing would come of it. A rewriting
    that repeats the statement ends it, because the model stands by what it wrote and would only go round in a circle. A
    rewriting continues the conversation in which the statement was written, so that both are one training sequence. The
    answer is the statement, or what a last role makes of its result where the task wants no statement.
    """
    question, lang = session.question.question, session.question.lang
    system = session.task.describe(lang, session.database, session.settings)
    messages = [user(prompt(WRITE, lang, question=question, dialect=session.database.dialect.title))]
    role, statements, sql = WRITE, session.settings.agent.max_turns, ""
    for left in range(statements - 1, -1, -1):
        reply = await session.ask(messages, system=system, role=role)
        before, sql = sql, statement_in(reply)
        if role == REWRITE and sql == before:
            break
        result = await session.tool(sql)
        if not left:
            break
        answer, feedback = session.tool.calls[-1].answer, ""
        if answer.status == "ok" and answer.hint is None:
            checked = prompt(CHECK, lang, question=question, sql=sql, result=result)
            feedback = await _check(session, checked, system)
            if approves(feedback):
                break
        messages += [assistant(reply), user(prompt(REWRITE, lang, result=result, feedback=feedback))]
        role = REWRITE
    if session.task.answer_is_sql:
        return sql
    return await session.ask(
        [user(prompt(ANSWER, lang, question=question, sql=sql, result=result))], system=system, role=ANSWER
    )


async def _check(session: AgentSession, message: str, system: str) -> str:
    """Return what the check says, "" where the reply cannot be used, because the statement may be right even so."""
    try:
        return await session.ask([user(message)], system=system, role=CHECK)
    except ModelBehaviorError:
        return ""


WORKFLOWS: Mapping[str, Workflow] = {"react": react, "check-rewrite": check_rewrite}


def approves(check: str) -> bool:
    """Return whether a check approves a statement: it does unless its last verdict says that the statement is wrong."""
    verdicts = _VERDICT.findall(check)
    return not verdicts or verdicts[-1].lower() == "right"


def prompt(role: str, lang: Lang, **values: str) -> str:
    """Return the prompt of a role, with `values` in the places of their names."""
    places = re.compile(r"\{(" + "|".join(values) + r")\}")
    return places.sub(lambda place: values[place[1]], _prompt_file(f"{role}.{lang}.txt")).strip()


def user(text: str) -> Message:
    """Return a message to the model."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """Return a message of the model."""
    return {"role": "assistant", "content": text}


@cache
def _prompt_file(name: str) -> str:
    return files("sql_agent.agent").joinpath("prompts", name).read_text(encoding="utf-8")
