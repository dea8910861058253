"""Of several answers to a question the one with the most frequent result counts; where few agree, the vote refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sql_agent.config.settings import load_settings
from sql_agent.evaluation.measures import measure_set
from sql_agent.evaluation.voting import Doubts, best_threshold, decide, vote
from sql_agent.reward.judges.items import Words
from sql_agent.schemas import Cell, Lang, Outcome, QueryAnswer, QueryCall, Question, RewardParts, RolloutRecord
from sql_agent.tasks.ehrsql.ehrsql_task import TASK as EHRSQL
from sql_agent.tasks.spider.spider_task import TASK as SPIDER
from tests.support.hospital import write_ehrsql_folder

WORDS: dict[Lang, Words] = {"en": Words(refusals=("null",)), "zh": Words()}


def sample(question: str, answer: str, *rows: Sequence[Cell], right: bool = False, number: int = 1) -> RolloutRecord:
    """The answer number `number` to a question; `rows` are the result, if the answer is a statement."""
    answerable = not question.startswith("no")
    ran = QueryAnswer(status="ok", records=tuple(map(tuple, rows)), count=len(rows))
    judge = 1.0 if right else 0.0 if answer == "null" else -0.5
    return RolloutRecord(
        question=Question(id=f"{question}#{number}", question="?", answer="SELECT 1" if answerable else "null"),
        answer=answer,
        outcome=Outcome.ANSWERED,
        calls=() if answer == "null" else (QueryCall(sql=answer, answer=ran, seconds=0.0),),
        reward=RewardParts(rule=0.0, judge=judge, judge_name="execution"),
    )


def samples(question: str, *records: RolloutRecord) -> list[RolloutRecord]:
    return [
        record.model_copy(update={"question": record.question.model_copy(update={"id": f"{question}#{number}"})})
        for number, record in enumerate(records, 1)
    ]


# Three samples each: two statements with one result, all different, nothing found, all refuse.
AGREED = samples(
    "a", sample("a", "SELECT 9", (9,)), sample("a", "SELECT x", (1,), (2,), right=True),
    sample("a", "SELECT y", (2,), (1,), right=True),
)  # fmt: skip
SPLIT = samples("b", sample("b", "SELECT 1", (1,)), sample("b", "SELECT 2", (2,)), sample("b", "SELECT 3", (3,)))
NOTHING = samples("no1", sample("no1", "SELECT 4"), sample("no1", "SELECT 5", (None,)), sample("no1", "SELECT 4"))
REFUSED = samples("no2", *[sample("no2", "null", right=True)] * 3)
ALL = [*AGREED, *SPLIT, *NOTHING, *REFUSED]


def test_the_most_frequent_result_wins_in_any_order_of_its_rows() -> None:
    votes = {record.question.id: (record.answer, agreement) for record, agreement in vote(ALL, WORDS, 3)}
    assert votes["a"] == ("SELECT x", 2 / 3)
    assert votes["b"] == ("SELECT 1", 1 / 3)
    assert votes["no1"][1] == 0.0, "what finds nothing is no answer"
    assert votes["no2"] == ("null", 1.0)


def test_the_vote_refuses_below_the_threshold_with_the_best_score() -> None:
    votes = vote(ALL, WORDS, 3)
    below = best_threshold(votes, WORDS)
    assert below == pytest.approx(2 / 3), "the wrong answer of one of three is not worth it"
    assert [record.answer for record in decide(votes, WORDS, below)] == ["SELECT x", "null", "null", "null"]
    figures = measure_set(decide(votes, WORDS, below), WORDS, reliability=True).all.figures
    assert [figures[f"rs_{c}"].value for c in ("0", "5", "10", "n")] == [75.0] * 4
    assert figures["accurate_answerable"].value == 0.5
    assert (figures["right_refusals"].value, figures["refusal_precision"].value) == (1.0, 2 / 3)


def test_a_wrong_answer_costs_as_the_shared_task_says() -> None:
    figures = measure_set(decide(vote(ALL, WORDS, 3), WORDS), WORDS, reliability=True).all.figures
    # Of four questions one is right, one wrong, and two are rightly refused.
    assert [figures[f"rs_{c}"].value for c in ("0", "5", "10", "n")] == [75.0, -50.0, -175.0, -25.0]
    one = measure_set(ALL, WORDS, reliability=True, samples=3).all.figures
    assert one["rs_0"].value == pytest.approx(100 * 5 / 12), "without a vote every answer counts"


def test_a_question_that_lost_a_sample_has_no_vote_and_a_task_without_refusals_keeps_its_answers() -> None:
    assert vote(AGREED[:2], WORDS, 3) == []
    kept = decide(vote(NOTHING, SPIDER.words, 3), SPIDER.words, 0.9)
    assert [record.answer for record in kept] == ["SELECT 4"], "where nothing can also be the right result"


def test_a_statement_in_doubt_has_no_vote(tmp_path: Path) -> None:
    """A word that training never had, or a condition that no row fulfils, although the statement counts 0."""
    settings = load_settings([f"spider.data_dir={write_ehrsql_folder(tmp_path)}"])

    def votes(question: str, sql: str, count: int = 0) -> float:
        record = sample("a", sql, (count,))
        asked = record.question.model_copy(update={"question": question, "database": "mimic_iv"})
        return vote([record.model_copy(update={"question": asked})], WORDS, 1, doubts)[0].agreement

    with EHRSQL.databases(settings) as databases:
        doubts = Doubts(databases, EHRSQL.questions(settings, "train"))
        known = "How many patients had glucose?"
        labs = "SELECT COUNT(*) FROM labevents WHERE itemid IN (SELECT itemid FROM {} WHERE label = 'glucose')"
        assert votes(known, labs.format("d_labitems") + " AND valuenum > 95 AND valuenum < 95") == 1.0, "a true 0"
        assert votes(known, labs.format("d_labitems") + " AND strftime('%Y', charttime) = '1999'") == 1.0
        assert votes(known, labs.format("d_items")) == 0.0, "an item of another table"
        assert votes(known, labs.format("d_items"), 3) == 1.0
        assert votes("How many patients had a telephone?", "SELECT COUNT(*) FROM patients", 2) == 0.0
        assert (
            votes("How many had heparin?", "SELECT COUNT(*) FROM prescriptions WHERE drug = 'heparin (iv)'", 1) == 1.0
        )
        doubts = Doubts(databases, None)
        assert votes("How many patients had a telephone?", "SELECT COUNT(*) FROM patients", 2) == 1.0
