"""A pool gives groups those questions again whose rollouts were rewarded differently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from sql_agent.rollouts.question_pool import QuestionPool
from sql_agent.rollouts.scheduler import Mode, RolloutRequest
from sql_agent.schemas import Question

SIZE = 3


def request(question: str, group: str, mode: Mode = "train") -> RolloutRequest:
    return RolloutRequest(Question(id=question, question=question, answer="x"), mode, 1, group)


def ask(pool: QuestionPool, question: str, group: str, rewards: Sequence[float | None]) -> str:
    """Run a group of `question` with these rewards, and return the question that it was given."""
    given_ = [pool.assign(request(question, group)) for _ in rewards]
    for rollout, reward in zip(given_, rewards, strict=True):
        pool.record(rollout, reward)
    (asked,) = {rollout.question.id for rollout in given_}
    return asked


def test_a_question_whose_rewards_differed_is_asked_again_until_they_agree() -> None:
    pool = QuestionPool(share=1.0, group_size=SIZE, seed=0)
    assert ask(pool, "a", "1", [0.0, 1.1, 1.1]) == "a"
    assert ask(pool, "b", "2", [0.0, 0.0, 1.1]) == "a"
    assert ask(pool, "c", "3", [1.1, 1.1, 1.1]) == "a"
    assert ask(pool, "d", "4", [1.1, 1.1, 1.1]) == "d"


def test_the_one_that_waited_longest_comes_first() -> None:
    pool = QuestionPool(share=1.0, group_size=SIZE, seed=0)
    begun = [pool.assign(request(name, name)) for name in "abc" for _ in range(SIZE)]
    for index, rollout in enumerate(begun):
        pool.record(rollout, float(index % 2))
    assert [ask(pool, "new", str(n), [1.0] * SIZE) for n in range(4)] == ["a", "b", "c", "new"]


def test_a_question_that_two_groups_leave_undecided_waits_once() -> None:
    pool = QuestionPool(share=1.0, group_size=SIZE, seed=0)
    begun = [
        pool.assign(request(name, group)) for name, group in (("a", "1"), ("a", "2"), ("b", "3")) for _ in range(SIZE)
    ]
    for index, rollout in enumerate(begun):
        pool.record(rollout, float(index % 2))
    assert [ask(pool, "new", f"new {n}", [1.0] * SIZE) for n in range(3)] == ["a", "b", "new"]


def test_groups_that_lost_rollouts_are_judged_by_the_others() -> None:
    pool = QuestionPool(share=1.0, group_size=SIZE, seed=0)
    ask(pool, "lost", "1", [None, None, 1.1])
    ask(pool, "undecided", "2", [None, 0.1, 1.1])
    assert ask(pool, "new", "3", [1.0] * SIZE) == "undecided"


def test_validation_asks_what_it_was_told_to_ask() -> None:
    pool = QuestionPool(share=1.0, group_size=SIZE, seed=0)
    ask(pool, "a", "1", [0.0, 1.1, 1.1])
    asked = pool.assign(request("v", "v", "val"))
    pool.record(asked, 0.0)
    assert asked.question.id == "v"


@given(
    share=st.floats(0, 1), seed=st.integers(0, 99), rewards=st.lists(st.tuples(*[st.sampled_from([0.0, 1.1])] * SIZE))
)
def test_every_group_asks_its_own_question_or_one_that_was_undecided_and_none_twice_at_once(
    share: float, seed: int, rewards: list[tuple[float, ...]]
) -> None:
    pool = QuestionPool(share=share, group_size=SIZE, seed=seed)
    undecided: Counter[str] = Counter()
    for number, group in enumerate(rewards):
        asked = ask(pool, str(number), f"g{number}", group)
        if asked != str(number):
            assert undecided[asked] == 1
            undecided[asked] -= 1
        undecided[asked] += len(set(group)) > 1
    if share == 0.0:
        assert all(count <= 1 for count in undecided.values())
