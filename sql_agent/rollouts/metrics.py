"""Compute the metrics of finished rollouts, such as reward/mean."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from sql_agent.reward.judges.items import Reader, Words
from sql_agent.reward.rule_reward import returned_rows
from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.schemas import DropCause, Lang, Outcome, QueryCall, RolloutRecord, Usage
from sql_agent.tasks.task import Task

Metrics = dict[str, float]
Rollouts = Iterable[FinishedRollout]

ACCURATE = 0.8  # the lowest judge score (0–1) of an accurate answer
_SAME = 1e-6  # rewards that differ by less are equal


def funnel(rollouts: Sequence[FinishedRollout], *, enqueued: int) -> Metrics:
    """Return how many rollouts reached each stage, from enqueued to kept, and how many the judge failed to grade."""
    kept = [r for r in rollouts if r.dropped is None]
    return {
        "rollouts/enqueued": enqueued,
        "rollouts/finished": len(rollouts),
        "rollouts/with_triplets": sum(r.triplets > 0 for r in rollouts),
        "rollouts/kept": len(kept),
        "rollouts/failed": enqueued - len(kept),
        "rollouts/split": sum(len(r.sequences) > 1 for r in kept),
        "judge/failed": count_judge_failures(rollouts),
    }


def count_judge_failures(rollouts: Rollouts) -> int:
    return sum(r.dropped is not None and r.dropped.cause is DropCause.JUDGE for r in rollouts)


def rewards(rollouts: Rollouts) -> Metrics:
    """Return means over the kept rollouts of the reward (0.0–1.1), of its parts, and of the agent's behaviour.

    The dict is empty if no rollout was kept.
    """
    records = kept_records(rollouts)
    if not records:
        return {}
    parts = [record.reward for record in records if record.reward]

    def mean(value: Callable[[RolloutRecord], float]) -> float:
        return statistics.fmean(map(value, records))

    result = {
        "reward/mean": statistics.fmean(reward.total for reward in parts),
        "reward/std": statistics.pstdev(reward.total for reward in parts),
        "reward/rule": statistics.fmean(reward.rule for reward in parts),
        "reward/judge": statistics.fmean(reward.judge for reward in parts),
        "agent/turns": mean(lambda r: r.turns),
        "agent/sql_ok": mean(lambda r: any(c.answer.status == "ok" for c in r.calls)),
        "accurate": mean(is_accurate),
        "correct": mean(is_correct),
        "agent/answered": mean(lambda r: r.outcome is Outcome.ANSWERED),
        "agent/seconds": mean(lambda r: r.seconds),
    }
    if any(r.usage.completion_tokens for r in records):  # some servers do not count tokens
        result["agent/completion_tokens"] = mean(lambda r: r.usage.completion_tokens)
    if any(reply.thought_tokens for r in records for reply in r.replies):
        result["agent/thought_tokens"] = mean(lambda r: sum(reply.thought_tokens for reply in r.replies))
    result |= calls_by_role(records)
    for name in sorted({name for reward in parts for name in reward.criteria} - {"correct"}):
        result[f"judge/{name}"] = statistics.fmean(r.criteria[name] for r in parts if name in r.criteria)
    result |= {f"agent/{name}": value for name, value in searching(records).items()}
    return result | by_kind(records)


def sampled_entropy(rollouts: Rollouts) -> Metrics:
    """Return `policy/entropy`: the mean of -ln p over the sampled tokens of the kept rollouts, in nats.

    The mean estimates the entropy of the policy's next token at the sampling temperature, which is E[-ln p]. The dict
    is empty if the policy's server sends no log-probabilities.
    """
    turns = [turn for rollout in rollouts if rollout.dropped is None for turn in rollout.turns]
    logprobs = [logprob for turn in turns for logprob in turn.logprobs or ()]
    return {"policy/entropy": -statistics.fmean(logprobs)} if logprobs else {}


def calls_by_role(records: Sequence[RolloutRecord]) -> Metrics:
    """Return `role/NAME` for each role of a workflow: the mean number of the role's model calls per rollout."""
    calls = Counter(reply.role for record in records for reply in record.replies if reply.role)
    return {f"role/{role}": count / len(records) for role, count in sorted(calls.items())}


def searching(records: Sequence[RolloutRecord]) -> Metrics:
    """Return how well the agent searched.

    `tool_calls` is the mean number of queries per rollout. `empty_results` is the share of successful queries that
    returned no row. `recovered` is the share of rollouts in which a later query returned rows, among the rollouts with
    an empty result. A share is left out if there is nothing to count.
    """
    ran = [call for record in records for call in record.calls if call.answer.status == "ok"]
    recovered = [has_recovered(record) for record in records if any(map(found_nothing, record.calls))]
    result = {"tool_calls": statistics.fmean(len(record.calls) for record in records)} if records else {}
    if ran:
        result["empty_results"] = statistics.fmean(map(found_nothing, ran))
    if recovered:
        result["recovered"] = statistics.fmean(recovered)
    return result


def found_nothing(call: QueryCall) -> bool:
    return call.answer.status == "ok" and call.answer.count == 0


def has_recovered(record: RolloutRecord) -> bool:
    """Return whether a query returned rows after the first empty result; `record` must have an empty result."""
    first = next(index for index, call in enumerate(record.calls) if found_nothing(call))
    return any(map(returned_rows, record.calls[first:]))


def by_kind(records: Iterable[RolloutRecord]) -> Metrics:
    """Return the share of accurate answers and the metrics of `searching` as `NAME/KIND`, by kind of question."""
    kinds: dict[str, list[RolloutRecord]] = defaultdict(list)
    for record in records:
        if record.question.task_type and record.reward:
            kinds[record.question.task_type].append(record)
    result: Metrics = {}
    for kind, answered in sorted(kinds.items()):
        result[f"accurate/{kind}"] = statistics.fmean(map(is_accurate, answered))
        result |= {f"{name}/{kind}": value for name, value in searching(answered).items()}
    return result


def refusals(records: Iterable[RolloutRecord], words: Mapping[Lang, Words]) -> Metrics:
    """Return shares of refusals, which are answers equal to a refusal sentence in `words`.

    `agent/refused` is the share among all answers, `refused_answerable` among answers to questions that the database
    answers, `right_refusals` among answers whose reference is a refusal. Answers in a language without
    a refusal sentence in `words` are not counted. A share of no answers is left out.
    """
    readers = {lang: Reader(of_lang) for lang, of_lang in words.items() if of_lang.refusals}
    refused: dict[bool, list[bool]] = {False: [], True: []}  # the key is whether the reference is a refusal
    for record in records:
        if reader := readers.get(record.question.lang):
            refused[reader.is_refusal(record.question.answer)].append(reader.is_refusal(record.answer))
    shares = {
        "agent/refused": [*refused[False], *refused[True]],
        "refused_answerable": refused[False],
        "right_refusals": refused[True],
    }
    return {name: statistics.fmean(answers) for name, answers in shares.items() if answers}


def is_accurate(record: RolloutRecord) -> bool:
    """Return whether the judge's score of the answer, before any ranking, is at least ACCURATE."""
    return record.reward is not None and record.reward.of_the_answer >= ACCURATE


def is_correct(record: RolloutRecord) -> bool:
    """Return whether the judge's criterion "correct" is 1. Without it, return `is_accurate`."""
    if record.reward is None:
        return False
    return record.reward.criteria.get("correct", float(is_accurate(record))) == 1.0


def rewards_by_group(rollouts: Rollouts) -> dict[str, dict[str, float]]:
    """Return the rewards of the kept rollouts as {group: {rollout id: reward}}."""
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    for rollout in rollouts:
        if rollout.dropped is None and rollout.reward is not None:
            groups[rollout.group][rollout.rollout_id] = rollout.reward
    return groups


def informative_groups(rollouts: Rollouts) -> Metrics:
    """Return `groups/informative`: the share of groups whose rewards differ. GRPO learns from no other groups.

    Groups with fewer than two kept rollouts are not counted. The dict is empty if no group is counted.
    """
    compared = [group.values() for group in rewards_by_group(rollouts).values() if len(group) > 1]
    if not compared:
        return {}
    return {"groups/informative": statistics.fmean(map(differ, compared))}


def differ(rewards: Collection[float]) -> bool:
    return len(rewards) > 1 and max(rewards) - min(rewards) > _SAME


def summary(rollouts: Sequence[FinishedRollout], *, enqueued: int, task: Task) -> Metrics:
    """Return all metrics of a training step or a validation, including those of `task`."""
    records = kept_records(rollouts)
    return {
        **funnel(rollouts, enqueued=enqueued),
        **rewards(rollouts),
        **refusals(records, task.words),
        **informative_groups(rollouts),
        **sampled_entropy(rollouts),
        **judge_cost(rollouts),
        **task.metrics(records),
    }


def kept_records(rollouts: Rollouts) -> list[RolloutRecord]:
    return [r.record for r in rollouts if r.dropped is None and r.record and r.record.reward]


def judge_cost(rollouts: Rollouts) -> Metrics:
    """Return the judge's requests, tokens and cost, also for dropped rollouts; empty if the judge was not asked."""
    usage = sum((r.record.judge_usage for r in rollouts if r.record), Usage())
    if not usage.requests and not usage.cache_hits:
        return {}
    cost = {} if usage.cost_usd is None else {"judge/cost_usd": usage.cost_usd}
    return cost | {
        "judge/requests": usage.requests,
        "judge/cache_hits": usage.cache_hits,
        "judge/prompt_tokens": usage.prompt_tokens,
        "judge/completion_tokens": usage.completion_tokens,
    }


def drop_reasons(rollouts: Rollouts) -> str:
    """Return the causes of dropped rollouts with their counts as one line, the most frequent first."""
    counts = Counter(str(rollout.dropped) for rollout in rollouts if rollout.dropped)
    return "; ".join(f"{count} × {reason}" for reason, count in counts.most_common()) or "none"
