"""Choose one of several answers to a question by a vote, and refuse if too few answers agree."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sql_agent.database import DatabasePool
from sql_agent.database.conditions import conditions, edited
from sql_agent.evaluation.measures import SAMPLE
from sql_agent.reward.execution_match import statement_in
from sql_agent.reward.judges.items import Reader, Words, normalise
from sql_agent.rollouts.metrics import is_accurate
from sql_agent.schemas import Lang, Question, RewardParts, RolloutRecord

Doubt = Callable[[RolloutRecord], bool]

_WORD = re.compile(r"[^\W\d_]+")
_PENALTY = 10  # one wrong answer costs as much as this many right answers earn


class Vote(NamedTuple):
    """The first record with the most frequent answer to a question, and the share of the samples with that answer."""

    record: RolloutRecord
    agreement: float


def vote(
    records: Sequence[RolloutRecord], words: Mapping[Lang, Words], samples: int, doubt: Doubt = lambda _: False
) -> list[Vote]:
    """Return the vote on each question whose `samples` are all graded; a vote's record has the question's own id.

    Statements with equal results vote together, and so do other answers with equal texts. A statement that fails does
    not vote. In a task with refusals (`words`), a statement that finds nothing or is in `doubt` does not vote either.
    """
    asked: dict[str, list[RolloutRecord]] = defaultdict(list)
    for record in records:
        if record.reward is not None:
            asked[record.question.id.rpartition(SAMPLE)[0]].append(record)
    votes = []
    for key, of in asked.items():
        if len(of) == samples:
            results = [_result(record, words, doubt) for record in of]
            counts = Counter(result for result in results if result is not None)
            winner, count = counts.most_common(1)[0] if counts else (None, 0)
            record = of[results.index(winner)]
            question = record.question.model_copy(update={"id": key})
            votes.append(Vote(record.model_copy(update={"question": question}), count / samples))
    return votes


def decide(votes: Sequence[Vote], words: Mapping[Lang, Words], below: float = 0.0) -> list[RolloutRecord]:
    """Return the records of `votes`; in a task with refusals, refuse if the agreement is 0 or smaller than `below`."""
    return [
        record if agreement > 0 and agreement >= below else _refused(record, words[record.question.lang])
        for record, agreement in votes
    ]


def best_threshold(votes: Sequence[Vote], words: Mapping[Lang, Words]) -> float:
    """Return the limit `below` with which `decide` earns the highest RS(10): 0.0 or the agreement of a vote."""

    def points(below: float) -> int:
        chosen = decide(votes, words, below)
        return sum(1 if is_accurate(record) else 0 if _refuses(record, words) else -_PENALTY for record in chosen)

    return max(sorted({0.0, *(agreement for _, agreement in votes)}), key=points)


def _result(record: RolloutRecord, words: Mapping[Lang, Words], doubt: Doubt) -> Hashable:
    """Return the key of an answer, or None if the answer does not vote; answers with equal keys vote together."""
    if not record.answer or _refuses(record, words):
        return "refusal" if record.answer else None
    sql = statement_in(record.answer)
    answer = next((call.answer for call in reversed(record.calls) if call.sql == sql), None)
    if answer is None:
        return normalise(record.answer)
    finds_something = any(cell is not None for row in answer.records for cell in row)
    if answer.error is not None or (words[record.question.lang].refusals and (not finds_something or doubt(record))):
        return None
    return answer.count, answer.truncated, tuple(sorted(map(repr, answer.records)))


def _refuses(record: RolloutRecord, words: Mapping[Lang, Words]) -> bool:
    return Reader(words[record.question.lang]).is_refusal(record.answer)


def _refused(record: RolloutRecord, words: Words) -> RolloutRecord:
    """Return `record` with the refusal sentence as a graded answer; unchanged in a task without refusals."""
    if not words.refusals or record.reward is None:
        return record
    right = Reader(words).is_refusal(record.question.answer)
    reward = RewardParts(rule=0.0, judge=float(right), judge_name=record.reward.judge_name, reason="too few agree")
    return record.model_copy(update={"answer": words.refusals[0], "reward": reward})


class Doubts:
    """Decides whether the statement of a rollout is in doubt, so that the statement does not vote.

    A statement is in doubt if the question has a new word, or if the statement returns only zeros and nulls and one of
    its conditions finds no row even without the others. A word is new if it is neither in a string of the statement
    nor in a question of `trained` that has SQL. If `trained` is None, no word is new.
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
        texts = _words(" ".join(sql.split("'")[1::2]))
        has_new_word = self._known is not None and not _words(question.question) <= self._known | texts
        return has_new_word or (counts_nothing and self._is_never_true(sql, question.database))

    def _find_never_true(self, sql: str, name: str | None) -> bool:
        """Return whether a condition of `sql`, without the others, finds no row; none with functions is tried."""
        with self._databases.of(name) as database:
            try:
                tree = sqlglot.parse_one(sql, read=database.dialect.name)
            except SqlglotError:  # SQLite accepts more than sqlglot does
                return False
            if not isinstance(tree, exp.Query):
                return False
            nodes = [part.node for part in conditions(tree, database.schema, database.dialect)]
            computed = [node for node in nodes if node.find(exp.Func) and not node.find(exp.Query)]
            kept = edited(tree, [(node, None) for node in computed])
            alone = (_alone(part.node) for part in conditions(kept, database.schema, database.dialect))
            answers = (database.query(each.sql(database.dialect.name)) for each in alone if each is not None)
            return any(answer.error is None and not answer.records for answer in answers)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _alone(condition: exp.Expr) -> exp.Select | None:
    """Return a statement that finds a row if `condition` is true for a row; None for a condition outside a SELECT."""
    select = condition.find_ancestor(exp.Select)
    if select is None:
        return None
    alone = select.copy()
    for clause in ("distinct", "group", "having", "order", "offset", "windows", "with_"):
        alone.set(clause, None)
    alone.set("expressions", [exp.Literal.number(1)])
    return alone.where(condition.copy(), append=False, copy=False).limit(1, copy=False)
