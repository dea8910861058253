"""Define the workflows, which are sequences of roles and prompts with which a model answers a question."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib.resources import files

from agents.exceptions import ModelBehaviorError

from sql_agent.agent.session import AgentSession, InputMessage
from sql_agent.agent.tools import function_tool
from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.reward.execution_match import statement_in
from sql_agent.schemas import Lang
from sql_agent.tasks.task import Task

WRITE, CHECK, REWRITE, ANSWER = "write", "check", "rewrite", "answer"

_VERDICT = re.compile(r"verdict\W{0,5}(right|wrong)", re.IGNORECASE)

Workflow = Callable[[AgentSession], Awaitable[str]]


def system_prompt(task: Task, database: Database, settings: Settings) -> str:
    """Return the system prompt of the workflow of `settings` (the texts are in `prompts/` of each task)."""
    write = task.instructions if settings.agent.workflow == "react" else task.describe
    return write(settings.lang, database, settings)


async def react(session: AgentSession) -> str:
    """Let the model call the tool until it answers, and return the answer."""
    task, question = session.task, session.question
    return await session.ask(
        [user(await session.database.in_thread(task.question_text, question, session.database))],
        system=task.instructions(question.lang, session.database, session.settings),
        tools=[function_tool(session.tool, task.describe_tool(session.database))],
        max_turns=session.settings.agent.max_turns,
    )


async def check_rewrite(session: AgentSession) -> str:
    """Write a statement, run it, check it, rewrite it until the check approves it, and return the answer.

    At most `agent.max_turns` statements are written. A statement with an error or a hint is rewritten without a check,
    because the error or hint says what to change; the last statement is not checked, because it cannot be rewritten.
    If the task has no checks, a statement with rows is final, and any other is rewritten. The workflow also ends when a
    rewrite repeats the statement, or when the model abstains. A rewrite continues the conversation of the role `write`,
    so that both are one training sequence. The answer is the statement, or, if the task does not want SQL, the text
    that the role `answer` writes from the result.
    """
    task, lang = session.task, session.question.lang
    question = await session.database.in_thread(task.question_text, session.question, session.database)
    system = task.describe(lang, session.database, session.settings)
    messages = [user(prompt(WRITE, lang, question=question, dialect=session.database.dialect.title))]
    role, statements, sql = WRITE, session.settings.agent.max_turns, ""
    for left in range(statements - 1, -1, -1):
        reply = await session.ask(messages, system=system, role=role)
        before, sql = sql, statement_in(reply)
        if (role == REWRITE and sql == before) or (task.answer_is_sql and task.abstains(sql, lang)):
            break
        result = await session.tool(sql)
        if not left:
            break
        answer, feedback = session.tool.calls[-1].answer, ""
        if answer.count and not task.checks_results:
            break
        if task.checks_results and answer.status == "ok" and answer.hint is None:
            checked = prompt(CHECK, lang, question=question, sql=sql, result=result)
            feedback = await _check(session, checked, system)
            if approves(feedback):
                break
        messages += [assistant(reply), user(prompt(REWRITE, lang, result=result, feedback=feedback))]
        role = REWRITE
    if task.answer_is_sql:
        return sql
    return await session.ask(
        [user(prompt(ANSWER, lang, question=question, sql=sql, result=result))], system=system, role=ANSWER
    )


async def _check(session: AgentSession, message: str, system: str) -> str:
    """Return the text of the check, or "" for an unusable reply, which counts as approval."""
    try:
        return await session.ask([user(message)], system=system, role=CHECK)
    except ModelBehaviorError:
        return ""


WORKFLOWS: Mapping[str, Workflow] = {"react": react, "check-rewrite": check_rewrite}


def approves(check: str) -> bool:
    """Return whether a check approves the statement: its last verdict is RIGHT, or there is no verdict."""
    verdicts = _VERDICT.findall(check)
    return not verdicts or verdicts[-1].lower() == "right"


def prompt(role: str, lang: Lang, **values: str) -> str:
    """Return the prompt of a role, with each {name} replaced by `values[name]`."""
    places = re.compile(r"\{(" + "|".join(values) + r")\}")
    return places.sub(lambda place: values[place[1]], _prompt_file(f"{role}.{lang}.txt")).strip()


def user(text: str) -> InputMessage:
    return {"role": "user", "content": text}


def assistant(text: str) -> InputMessage:
    return {"role": "assistant", "content": text}


@cache
def _prompt_file(name: str) -> str:
    return files("sql_agent.agent").joinpath("prompts", name).read_text(encoding="utf-8")
