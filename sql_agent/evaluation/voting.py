"""Choose one of several answers to a question by a vote, and refuse if too few answers agree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from sql_agent.evaluation.measures import SAMPLE
from sql_agent.reward.execution_match import statement_in
from sql_agent.reward.judges.items import Reader, Words, normalise
from sql_agent.rollouts.metrics import is_accurate
from sql_agent.schemas import Lang, RewardParts, RolloutRecord

Doubt = Callable[[RolloutRecord], bool]

_PENALTY = 10  # right answers that one wrong answer outweighs when the threshold is chosen


class Vote(NamedTuple):
    """The first record with the most frequent answer to a question, and the share of the samples with that answer."""

    record: RolloutRecord
    agreement: float


def vote(
    records: Sequence[RolloutRecord], words: Mapping[Lang, Words], samples: int, doubt: Doubt = lambda _: False
) -> list[Vote]:
    """Return the vote on each question whose `samples` are all graded; the record has the id without sample number.

    Statements with equal results vote together, and so do other answers with equal texts. A statement that fails does
    not vote. In a task with refusals (`words`), a statement that finds nothing or is in `doubt` does not vote either.
    """
    asked: dict[str, list[RolloutRecord]] = defaultdict(list)
    for record in records:
        if record.reward is not None:
            asked[record.question.id.rpartition(SAMPLE)[0]].append(record)
    return [_vote(key, of, words, doubt) for key, of in asked.items() if len(of) == samples]


def decide(votes: Sequence[Vote], words: Mapping[Lang, Words], below: float = 0.0) -> list[RolloutRecord]:
    """Return the records of `votes`; in a task with refusals, a refusal where the agreement is 0 or below `below`."""
    return [
        record if agreement > 0 and agreement >= below else _refused(record, words[record.question.lang])
        for record, agreement in votes
    ]


def best_threshold(votes: Sequence[Vote], words: Mapping[Lang, Words]) -> float:
    """Return the argument `below` with which `decide` earns the highest RS(10): 0.0 or an agreement of `votes`."""

    def points(below: float) -> int:
        chosen = decide(votes, words, below)
        return sum(1 if is_accurate(record) else 0 if _refuses(record, words) else -_PENALTY for record in chosen)

    return max(sorted({0.0, *(agreement for _, agreement in votes)}), key=points)


def _vote(key: str, records: Sequence[RolloutRecord], words: Mapping[Lang, Words], doubt: Doubt) -> Vote:
    results = [_result(record, words, doubt) for record in records]
    counts = Counter(result for result in results if result is not None)
    winner, count = counts.most_common(1)[0] if counts else (None, 0)
    record = records[results.index(winner)]
    question = record.question.model_copy(update={"id": key})
    return Vote(record.model_copy(update={"question": question}), count / len(records))


def _result(record: RolloutRecord, words: Mapping[Lang, Words], doubt: Doubt) -> Hashable:
    """Return the key of an answer's vote: answers with equal keys vote together. None if the answer does not vote."""
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
