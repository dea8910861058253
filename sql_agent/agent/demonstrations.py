"""Make demonstrations, which are example conversations of a workflow, from gold SQL for supervised fine-tuning."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sql_agent.agent.demonstration_thoughts import answer_thought, query_thoughts, refusal_thought
from sql_agent.agent.tools import answer_json, in_rollout, most_calls
from sql_agent.agent.workflows import ANSWER, REWRITE, WRITE, prompt
from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.database.schema import Schema, fold
from sql_agent.schemas import QueryAnswer, Question
from sql_agent.tasks.task import Task

_REWRITE_EVERY = 4  # one demonstration of check-rewrite in 4 has a rewrite
_MISTAKE_EVERY = 6  # one demonstration of react in 6 has a mistake

_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
_WORD = re.compile(rf"{_QUOTED}|[A-Za-z_]\w*")
_FROM = re.compile(rf"{_QUOTED}|\b(?:from|join)\s+(?P<table>[A-Za-z_]\w*)", re.IGNORECASE)
_TESTED = re.compile(rf"{_QUOTED}|\b(?P<column>[A-Za-z_]\w*)(?=\s*(?:=|LIKE)\s*')", re.IGNORECASE)
_OF_TABLE = re.compile(rf"{_QUOTED}|\b(?P<table>[A-Za-z_]\w*)\.(?P<column>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class DemonstratedTurn:
    """One turn of the model, and the message that follows the turn.

    `text` is the model's reply, or if `is_call` the SQL statement of a tool call. `reaction` is the tool's result after
    a call, else the next user message; "" after the last turn. If `is_trained` is False, the turn is only context.
    `thought` is the text that a thinking model writes before the reply.
    """

    text: str
    reaction: str = ""
    is_trained: bool = True
    is_call: bool = False
    thought: str = ""


@dataclass(frozen=True)
class Demonstration:
    """An example conversation. `opening` is the first user message; `has_tool` is whether the model has the tool."""

    system: str
    opening: str
    has_tool: bool
    turns: tuple[DemonstratedTurn, ...]


Demonstrate = Callable[[int, Question, Task, Database, Settings], Demonstration]


def demonstrate(number: int, question: Question, task: Task, database: Database, settings: Settings) -> Demonstration:
    """Return a demonstration of the workflow of `settings`; of abstaining if the question has no gold SQL.

    `number`, the index of the demonstration, selects the role and the mistake.
    """
    show = _DEMONSTRATE[settings.agent.workflow] if question.statements else _abstaining
    return show(number, question, task, database, settings)


def _react(number: int, question: Question, task: Task, database: Database, settings: Settings) -> Demonstration:
    """Return a tool call for each gold statement, sometimes with a mistake before or after, and then the answer.

    The model is not trained on a statement that fails, that repeats another statement, or that finds nothing while a
    later statement finds something, so that the model learns to recover from a failed search, not to search in vain.
    If no statement finds anything, the model is trained on all statements.
    """
    answers = [database.query(sql) for sql in question.statements]
    is_found = list(map(_finds_something, answers))
    queries = [
        _Query(sql, answer, is_trained=found or not any(is_found[place:]))
        for place, (sql, answer, found) in enumerate(zip(question.statements, answers, is_found, strict=True))
    ]
    max_calls = most_calls(settings)
    if number % _MISTAKE_EVERY == 1:
        count, which = divmod(number // _MISTAKE_EVERY, len(_DETOURS))
        longer = _DETOURS[which](queries, database, max_calls, count)
        queries = longer if len(longer) <= max_calls else queries
    answer = _fenced(question.full_answer) if task.answer_is_sql else question.full_answer
    system = task.instructions(question.lang, database, settings)
    thoughts = query_thoughts([query.sql for query in queries], question.lang, task, database)
    calls = [replace(call, thought=thought) for call, thought in zip(_calls(queries, max_calls), thoughts, strict=True)]
    last = DemonstratedTurn(answer, thought=answer_thought(question.lang))
    return Demonstration(system, task.question_text(question, database), True, (*calls, last))


@dataclass(frozen=True)
class _Query:
    sql: str
    answer: QueryAnswer
    is_trained: bool


def _calls(queries: Sequence[_Query], max_calls: int) -> Iterator[DemonstratedTurn]:
    """Yield a tool call for each of `queries`, with the results and hints of a rollout limited to `max_calls` calls."""
    for place, query in enumerate(queries):
        before = [earlier.sql for earlier in queries[:place]]
        shown = answer_json(in_rollout(query.answer, query.sql, before, max_calls))
        yield DemonstratedTurn(query.sql, shown, query.is_trained, is_call=True)


def _after_error(queries: Sequence[_Query], database: Database, _max_calls: int, number: int) -> list[_Query]:
    """Return `queries`, preceded by a copy of the first statement that a mistake makes fail."""
    failing = _failing(queries[0].sql, database, number)
    return [*(_Query(sql, error, is_trained=False) for sql, error in failing), *queries]


def _repeated(queries: Sequence[_Query], _database: Database, _max_calls: int, number: int) -> list[_Query]:
    place = number % len(queries)
    return [*queries[: place + 1], replace(queries[place], is_trained=False), *queries[place + 1 :]]


def _repeated_to_the_end(queries: Sequence[_Query], _database: Database, max_calls: int, _number: int) -> list[_Query]:
    return [*queries, *[replace(queries[-1], is_trained=False)] * (max_calls - len(queries))]


# Typical mistakes of models: a failing statement, and a statement repeated once or until no turn is left.
_DETOURS = (_after_error, _repeated, _repeated_to_the_end)


def _check_rewrite(
    number: int, question: Question, task: Task, database: Database, settings: Settings
) -> Demonstration:
    """Return a conversation of the role `write`, sometimes with a rewrite, or of the role `answer`.

    A rewrite corrects a failing statement, or the question's earlier statements if all of these find nothing.
    """
    lang, gold = question.lang, question.statements[-1]
    system, asked = task.describe(lang, database, settings), task.question_text(question, database)
    opening = prompt(WRITE, lang, question=asked, dialect=database.dialect.title)
    before: Sequence[tuple[str, QueryAnswer]] = ()
    if number % 2 == 0 and not task.answer_is_sql:
        result = answer_json(database.query(gold))
        opening = prompt(ANSWER, lang, question=asked, sql=gold, result=result)
        last = DemonstratedTurn(question.full_answer, thought=answer_thought(lang))
        return Demonstration(system, opening, False, (last,))
    searched = [(sql, database.query(sql)) for sql in question.statements[:-1]]
    if searched and not any(_finds_something(answer) for _, answer in searched):
        before = searched[-(settings.agent.max_turns - 1) :] if settings.agent.max_turns > 1 else ()
    elif number % _REWRITE_EVERY == 1 and settings.agent.max_turns > 1:
        before = _failing(gold, database, number // _REWRITE_EVERY)
    reactions = [(sql, prompt(REWRITE, lang, result=answer_json(answer), feedback="")) for sql, answer in before]
    misses = [DemonstratedTurn(_fenced(sql), reaction, is_trained=False) for sql, reaction in reactions]
    thoughts = query_thoughts([*(sql for sql, _ in before), gold], lang, task, database)
    turns = zip((*misses, DemonstratedTurn(_fenced(gold))), thoughts, strict=True)
    return Demonstration(system, opening, False, tuple(replace(turn, thought=thought) for turn, thought in turns))


def _abstaining(_number: int, question: Question, task: Task, database: Database, settings: Settings) -> Demonstration:
    """Return a conversation in which the model refuses to answer, without a query."""
    lang, asked = question.lang, task.question_text(question, database)
    reply = DemonstratedTurn(question.answer, thought=refusal_thought(lang))
    if settings.agent.workflow == "react":
        return Demonstration(task.instructions(lang, database, settings), asked, True, (reply,))
    opening = prompt(WRITE, lang, question=asked, dialect=database.dialect.title)
    return Demonstration(task.describe(lang, database, settings), opening, False, (reply,))


_DEMONSTRATE: Mapping[str, Demonstrate] = {"react": _react, "check-rewrite": _check_rewrite}


def _failing(sql: str, database: Database, number: int) -> Sequence[tuple[str, QueryAnswer]]:
    """Return `sql` with a mistake, and the resulting error, as one pair; () if no mistake makes `sql` fail."""
    for broken in _mistakes(sql, database.schema, number):
        answer = database.query(broken)
        if answer.error is not None:
            return [(broken, answer)]
    return ()


def _finds_something(answer: QueryAnswer) -> bool:
    """Return whether `answer` has a cell that is neither NULL nor empty nor 0."""
    return any(cell for row in answer.records for cell in row)


def _fenced(sql: str) -> str:
    return f"```sql\n{sql}\n```"


def _mistakes(sql: str, schema: Schema, number: int) -> Iterator[str]:
    """Yield copies of `sql` with one mistake each; most copies fail in a database of `schema`.

    `number` selects the first kind of mistake, and its position in the statement.
    """
    first = number % len(_KINDS)
    for make in (*_KINDS[first:], *_KINDS[:first]):
        if (broken := make(sql, schema, number // len(_KINDS))) is not None:
            yield broken


def _invented_column(sql: str, schema: Schema, number: int) -> str | None:
    """Return `sql` with one column renamed to a name that the schema lacks."""
    chosen = _one_of([match for match in _WORD.finditer(sql) if fold(match[0]) in schema.column_names], number)
    if chosen is None:
        return None
    invented = f"{chosen[0]}_value" if "_" not in chosen[0] else chosen[0].replace("_", "", 1)
    return sql[: chosen.start()] + invented + sql[chosen.end() :]


def _wrong_table(sql: str, schema: Schema, number: int) -> str | None:
    """Return `sql` with one table replaced by another, which usually lacks the columns of the statement."""
    chosen = _one_of(_with_table(_FROM, sql), number)
    others = [table for table, _ in schema.tables if chosen and fold(table) != fold(chosen["table"])]
    if chosen is None or not others:
        return None
    return sql[: chosen.start("table")] + others[number % len(others)] + sql[chosen.end("table") :]


def _other_table(sql: str, _schema: Schema, number: int) -> str | None:
    """Return `sql` with the qualifier of one column replaced by another table of the statement."""
    found = _with_table(_OF_TABLE, sql)
    chosen = _one_of(found, number)
    others = sorted({match["table"] for match in found} - {chosen["table"]}) if chosen else []
    if chosen is None or not others:
        return None
    return sql[: chosen.start("table")] + others[number % len(others)] + sql[chosen.end("table") :]


def _no_table(sql: str, _schema: Schema, number: int) -> str | None:
    """Return `sql` without the qualifier of one column, which may then be ambiguous."""
    chosen = _one_of(_with_table(_OF_TABLE, sql), number)
    return sql[: chosen.start()] + sql[chosen.start("column") :] if chosen else None


def _tested_elsewhere(sql: str, schema: Schema, number: int) -> str | None:
    """Return `sql` with a column before `= 'text'` or `LIKE 'text'` replaced by a column that its tables lack.

    The hint for the error then has the statement that searches the text in a column of the right table.
    """
    chosen = _one_of([match for match in _TESTED.finditer(sql) if match["column"]], number)
    read = {fold(match["table"]) for match in _with_table(_FROM, sql)}
    known = {fold(column) for table, columns in schema.tables if fold(table) in read for column in columns}
    others = [column for _, columns in schema.tables for column in columns if fold(column) not in known]
    if chosen is None or not others:
        return None
    return sql[: chosen.start()] + others[number % len(others)] + sql[chosen.end() :]


def _stray_brace(sql: str, _schema: Schema, _number: int) -> str | None:
    """Return `sql` with a closing brace at the end, a typical mistake of models trained on JSON tool calls."""
    return f"{sql}}}"


_KINDS: Sequence[Callable[[str, Schema, int], str | None]] = (
    _wrong_table,
    _invented_column,
    _other_table,
    _no_table,
    _tested_elsewhere,
    _stray_brace,
)


def _with_table(pattern: re.Pattern[str], sql: str) -> list[re.Match[str]]:
    """Return the matches of `pattern` with a table's name. The other matches are quoted strings."""
    return [match for match in pattern.finditer(sql) if match["table"]]


def _one_of(found: Sequence[re.Match[str]], number: int) -> re.Match[str] | None:
    return found[number % len(found)] if found else None
