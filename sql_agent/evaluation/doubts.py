"""Decide whether a statement is in doubt, for a new word in the question or a condition that is never true."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sql_agent.database import Database, DatabasePool
from sql_agent.database.conditions import conditions, edited
from sql_agent.reward.execution_match import statement_in
from sql_agent.schemas import Question, RolloutRecord

_WORD = re.compile(r"[^\W\d_]+")


class Doubts:
    """Decides whether the statement of a rollout is in doubt, so that the statement has no vote.

    A word of the question is new if neither the statement's texts nor a question of `trained` with SQL has the word. If
    `trained` is None, no word is new.
    """

    def __init__(self, databases: DatabasePool, trained: Iterable[Question] | None) -> None:
        self._databases = databases
        self._known = None if trained is None else {word for q in trained if q.sql for word in _words(q.question)}
        self._is_never_true = cache(self._find_never_true)

    def __call__(self, record: RolloutRecord) -> bool:
        sql, question = statement_in(record.answer), record.question
        answer = next((call.answer for call in reversed(record.calls) if call.sql == sql), None)
        if answer is None or answer.error is not None:
            return False
        counts_nothing = all(cell in {None, 0} for row in answer.records for cell in row)
        return self._has_new_word(question.question, sql) or (
            counts_nothing and self._is_never_true(sql, question.database)
        )

    def _has_new_word(self, question: str, sql: str) -> bool:
        return self._known is not None and not _words(question) <= self._known | _words(" ".join(sql.split("'")[1::2]))

    def _find_never_true(self, sql: str, name: str | None) -> bool:
        """Return whether a condition alone finds no row; conditions that call functions, as for times, are left out."""
        with self._databases.of(name) as database:
            try:
                tree = sqlglot.parse_one(sql, read=database.dialect.name)
            except SqlglotError:  # SQLite takes more than sqlglot does
                return False
            if not isinstance(tree, exp.Query):
                return False
            nodes = [part.node for part in conditions(tree, database.schema, database.dialect)]
            computed = [node for node in nodes if node.find(exp.Func) and not node.find(exp.Query)]
            kept = edited(tree, [(node, None) for node in computed])
            alone = (_alone(part.node) for part in conditions(kept, database.schema, database.dialect))
            return any(_finds_nothing(each, database) for each in alone if each is not None)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _alone(condition: exp.Expr) -> exp.Select | None:
    """Return a statement that finds a row if `condition` is true of a row; None for a condition outside a SELECT."""
    select = condition.find_ancestor(exp.Select)
    if select is None:
        return None
    alone = select.copy()
    for clause in ("distinct", "group", "having", "order", "offset", "windows", "with_"):
        alone.set(clause, None)
    alone.set("expressions", [exp.Literal.number(1)])
    return alone.where(condition.copy(), append=False, copy=False).limit(1, copy=False)


def _finds_nothing(select: exp.Select, database: Database) -> bool:
    answer = database.query(select.sql(database.dialect.name))
    return answer.error is None and not answer.records
