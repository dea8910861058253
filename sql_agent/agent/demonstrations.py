"""Make demonstrations, which are example conversations of a workflow, from gold SQL for supervised fine-tuning."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sql_agent.agent.sql_mistakes import parsed, with_mistake, with_needless_condition
from sql_agent.agent.tools import answer_json, in_rollout, most_calls
from sql_agent.agent.workflows import ANSWER, REWRITE, WRITE, prompt
from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.database.hints import suggested_statements
from sql_agent.database.schema import fold
from sql_agent.schemas import Lang, QueryAnswer, Question
from sql_agent.system.files import prompt_file
from sql_agent.tasks.task import Task

_REWRITE_EVERY = 4  # one demonstration of check-rewrite in 4 has a rewrite
_MISTAKE_EVERY = 6  # one demonstration of react in 6 has a mistake
_MOST_COLUMNS = 3  # maximum number of columns that a thought names; it names none if there are more

_Column = tuple[str, str]  # table and column


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


def demonstrate(number: int, question: Question, task: Task, database: Database, settings: Settings) -> Demonstration:
    """Return a demonstration of the workflow of `settings`, or of a refusal if the question has no gold SQL.

    `number`, the index of the demonstration, selects the role and the mistake.
    """
    if not question.statements:
        return _abstaining(question, task, database, settings)
    show = _react if settings.agent.workflow == "react" else _check_rewrite
    return show(number, question, task, database, settings)


def _react(number: int, question: Question, task: Task, database: Database, settings: Settings) -> Demonstration:
    """Return a tool call for each gold statement, sometimes with a mistake, and then the answer.

    The model is not trained on a statement that fails, that repeats another statement, or that finds nothing while a
    later statement finds something: the model shall learn to recover from a failed search, not to make one. If no
    statement finds anything, the model is trained on all statements of the gold SQL.
    """
    answers = [database.query(sql) for sql in question.statements]
    is_found = list(map(_finds_something, answers))
    queries = [
        _Query(sql, answer, is_trained=found or not any(is_found[place:]))
        for place, (sql, answer, found) in enumerate(zip(question.statements, answers, is_found, strict=True))
    ]
    max_calls = most_calls(settings)
    if number % _MISTAKE_EVERY == 1:
        longer = _with_mistake(queries, question.question, database, max_calls, number // _MISTAKE_EVERY)
        queries = longer if len(longer) <= max_calls else queries
    answer = _fenced(question.full_answer) if task.answer_is_sql else question.full_answer
    system = task.instructions(question.lang, database, settings)
    thoughts = query_thoughts([query.sql for query in queries], question.lang, task, database)
    calls = [replace(call, thought=thought) for call, thought in zip(_calls(queries, max_calls), thoughts, strict=True)]
    last = DemonstratedTurn(answer, thought=_sentences(question.lang)["answer"])
    return Demonstration(system, task.question_text(question, database), True, (*calls, last))


@dataclass(frozen=True)
class _Query:
    sql: str
    answer: QueryAnswer
    is_trained: bool


def _calls(queries: Sequence[_Query], max_calls: int) -> Iterator[DemonstratedTurn]:
    """Yield a tool call for each query, with the result and hints that a rollout of `max_calls` calls would show."""
    for place, query in enumerate(queries):
        before = [earlier.sql for earlier in queries[:place]]
        shown = answer_json(in_rollout(query.answer, query.sql, before, max_calls))
        yield DemonstratedTurn(query.sql, shown, query.is_trained, is_call=True)


def _with_mistake(
    queries: Sequence[_Query], asked: str, database: Database, max_calls: int, number: int
) -> list[_Query]:
    """Return `queries` with a typical mistake, which `number` selects.

    Kinds 0 and 2: a copy of the first statement that fails comes first, and what its hint says replaces `queries` if it
    reads the same. Kind 1: one statement is repeated. Kind 3: the last statement is repeated until no call is left.
    Kind 4: a copy of the first statement with a needless condition comes first, once or twice.
    """
    number, kind = divmod(number, 5)
    if kind == 1:
        place = number % len(queries)
        return [*queries[: place + 1], replace(queries[place], is_trained=False), *queries[place + 1 :]]
    if kind == 3:
        return [*queries, *[replace(queries[-1], is_trained=False)] * (max_calls - len(queries))]
    first = queries[0]
    finds = kind == 4 and first.answer.records
    if finds and (needless := with_needless_condition(first.sql, asked, database, number)):
        return [*[_Query(*needless, is_trained=False)] * (1 + number % 2), *queries]
    broken = with_mistake(first.sql, database, 2 * number + kind // 2)
    if broken is None:
        return list(queries)
    return [_Query(*broken, is_trained=False), *_as_hinted(queries, broken[1], database)]


def _as_hinted(queries: Sequence[_Query], failed: QueryAnswer, database: Database) -> Sequence[_Query]:
    """Return the first statement of the hint in `failed` that finds the rows of `queries`, else `queries`."""
    found = [query.answer for query in queries if _finds_something(query.answer)]
    for sql in suggested_statements(failed.error.hint) if failed.error and len(found) == 1 else ():
        answer = database.query(sql)
        if set(found[0].columns) <= set(answer.columns):
            places = [answer.columns.index(column) for column in found[0].columns]
            if [tuple(row[place] for place in places) for row in answer.records] == list(found[0].records):
                return [_Query(sql, answer, is_trained=True)]
    return queries


def _check_rewrite(
    number: int, question: Question, task: Task, database: Database, settings: Settings
) -> Demonstration:
    """Return a conversation of the role `write`, sometimes with a rewrite, or of the role `answer`.

    A rewrite replaces a failing statement, or the question's earlier statements if none of them finds anything.
    """
    lang, gold = question.lang, question.statements[-1]
    system, asked = task.describe(lang, database, settings), task.question_text(question, database)
    opening = prompt(WRITE, lang, question=asked, dialect=database.dialect.title)
    before: Sequence[tuple[str, QueryAnswer]] = ()
    if number % 2 == 0 and not task.answer_is_sql:
        result = answer_json(database.query(gold))
        opening = prompt(ANSWER, lang, question=asked, sql=gold, result=result)
        last = DemonstratedTurn(question.full_answer, thought=_sentences(lang)["answer"])
        return Demonstration(system, opening, False, (last,))
    searched = [(sql, database.query(sql)) for sql in question.statements[:-1]]
    if searched and not any(_finds_something(answer) for _, answer in searched):
        before = searched[-(settings.agent.max_turns - 1) :] if settings.agent.max_turns > 1 else ()
    elif number % _REWRITE_EVERY == 1 and settings.agent.max_turns > 1:
        broken = with_mistake(gold, database, number // _REWRITE_EVERY)
        before = [broken] if broken else []
    reactions = [(sql, prompt(REWRITE, lang, result=answer_json(answer), feedback="")) for sql, answer in before]
    misses = [DemonstratedTurn(_fenced(sql), reaction, is_trained=False) for sql, reaction in reactions]
    thoughts = query_thoughts([*(sql for sql, _ in before), gold], lang, task, database)
    turns = zip((*misses, DemonstratedTurn(_fenced(gold))), thoughts, strict=True)
    return Demonstration(system, opening, False, tuple(replace(turn, thought=thought) for turn, thought in turns))


def _abstaining(question: Question, task: Task, database: Database, settings: Settings) -> Demonstration:
    """Return a conversation in which the model refuses to answer, without a query."""
    lang, asked = question.lang, task.question_text(question, database)
    reply = DemonstratedTurn(question.answer, thought=_sentences(lang)["refuse"])
    if settings.agent.workflow == "react":
        return Demonstration(task.instructions(lang, database, settings), asked, True, (reply,))
    opening = prompt(WRITE, lang, question=asked, dialect=database.dialect.title)
    return Demonstration(task.describe(lang, database, settings), opening, False, (reply,))


def _finds_something(answer: QueryAnswer) -> bool:
    """Return whether `answer` has a cell that is neither NULL nor empty nor 0."""
    return any(cell for row in answer.records for cell in row)


def _fenced(sql: str) -> str:
    return f"```sql\n{sql}\n```"


def _sentences(lang: Lang) -> dict[str, str]:
    """Return the sentences from which thoughts are built, in one language, keyed by name."""
    sentences: dict[str, str] = tomllib.loads(prompt_file(__file__, "thoughts.toml"))[lang]
    return sentences


def query_thoughts(statements: Sequence[str], lang: Lang, task: Task, database: Database) -> Iterator[str]:
    """Yield the thought before each of `statements`, which are run one after the other.

    A thought names the columns that the statement reads, each with its label from the task, and then the other columns
    that later statements read; see `_columns_read`.
    """
    sentences = _sentences(lang)
    read = [_columns_read(sql, task, database) for sql in statements]
    for place, columns in enumerate(read):
        others = dict.fromkeys(column for later in read[place + 1 :] for column in later if column not in columns)
        otherwise = sentences["otherwise"].format(columns=_listed(list(others))) if others else ""
        about = ""
        if columns:
            labels = sentences["joint"].join(sentences["label"].format(_label(each, lang, task)) for each in columns)
            about = sentences["about"].format(labels=labels, columns=_listed(columns), otherwise=otherwise)
        if place == 0:
            yield about or sentences["look_up"]
        else:
            yield sentences["again"] + (about or sentences["query_again"])


def _listed(columns: Sequence[_Column]) -> str:
    return ", ".join(".".join(column) for column in columns)


def _label(column: _Column, lang: Lang, task: Task) -> str:
    table, name = column
    return task.labels(lang).get(table, {}).get(name) or name.replace("_", " ")


def _columns_read(sql: str, task: Task, database: Database) -> list[_Column]:
    """Return the columns that `sql` reads, except row keys and name columns; [] if over three, or for invalid SQL."""
    schema, tree = database.schema, parsed(sql, database)
    if tree is None:
        return []
    tables = {fold(t.alias_or_name): spelled for t in tree.find_all(exp.Table) if (spelled := schema.spelled(t.name))}
    found: dict[_Column, None] = {}
    for column in tree.find_all(exp.Column):
        for table in [tables.get(fold(column.table), "")] if column.table else tables.values():
            names = {fold(name): name for name in schema.columns.get(table, ())}
            naming = task.schema.names.get(table)
            skipped = {schema.row_key(table), naming.column if naming else None}
            if (name := names.get(fold(column.name))) and name not in skipped:
                found[table, name] = None
                break
    return list(found) if len(found) <= _MOST_COLUMNS else []
