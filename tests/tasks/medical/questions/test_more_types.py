"""The kinds of question that people ask beside whole fields: each is answered by the rows, and only by them."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from sql_agent.database.schema import fold
from sql_agent.errors import DataError
from sql_agent.schemas import Question
from sql_agent.tasks.medical.banks import Topic, banks
from sql_agent.tasks.medical.phrasing import wording
from sql_agent.tasks.medical.questions.catalog import Catalog, read_catalog
from sql_agent.tasks.medical.questions.claimed_rows import claimed_rows
from sql_agent.tasks.medical.questions.claims import claim_readers
from sql_agent.tasks.medical.questions.draft import MAX_ITEMS, Condition, Corpus
from sql_agent.tasks.medical.questions.negation import negation
from sql_agent.tasks.medical.questions.topics import TopicReader
from sql_agent.tasks.medical.sample import SEPARATORS
from sql_agent.tasks.medical.verify import verify
from tests.support.medical_questions import Made, everything

pytestmark = pytest.mark.slow  # makes all questions of a sample, which takes seconds


def of_type(made: Made, *types: str) -> list[Question]:
    found = [question for question in everything(made) if question.task_type in types]
    assert found
    return found


def facts(question: Question) -> list[str]:
    return question.answer.split(SEPARATORS[question.lang])


def test_a_part_of_a_field_is_less_than_the_cell(sample: tuple[Path, Made]) -> None:
    path, made = sample
    catalog = read_catalog(path)
    rows = {(row.table, row.row_id): row for rows in catalog.rows.values() for row in rows}
    for question in of_type(made, "part_of_field"):
        item = question.evidence[0]
        whole = catalog.items(rows[item.table, item.row_id], item.field)
        assert set(facts(question)) < set(whole)


def test_most_answers_about_a_field_are_lists_and_some_questions_ask_for_all_of_one(
    sample: tuple[Path, Made],
) -> None:
    """A model that was trained on cells of one item gives one item of each answer."""
    _, made = sample
    fields = of_type(made, "drug_field", "disease_field")
    assert sum(len(facts(question)) > 1 for question in fields) > 0.6 * len(fields)
    assert sum(len(facts(question)) > 4 for question in fields) > 0.15 * len(fields)
    told = banks(fields[0].lang).situations.everything
    endings = tuple(text.rstrip(".").casefold() for text in (*told.train, *told.test))
    for_all = [question for question in everything(made) if question.question.rstrip(".").casefold().endswith(endings)]
    assert len(for_all) > 0.02 * len(list(everything(made)))
    assert not {question.task_type for question in for_all} & {"yes_no", "aggregate", "any_of"}


def test_both_answers_of_yes_no_are_about_as_frequent(sample: tuple[Path, Made]) -> None:
    _, made = sample
    for questions in made.values():
        asked = [question for question in questions if question.task_type == "yes_no"]
        words = wording(asked[0].lang)
        yes = sum(question.answer == words.yes for question in asked) / len(asked)
        assert {question.answer for question in asked} == {words.yes, words.no}
        assert 0.35 < yes < 0.65


def test_a_no_quotes_the_whole_cell_of_which_the_question_holds_nothing(sample: tuple[Path, Made]) -> None:
    _, made = sample
    no = wording(next(everything(made)).lang).no
    for question in of_type(made, "yes_no"):
        claimed = any(reader.worded(question.question) for reader in claim_readers(question.lang))
        if question.answer == no and not claimed:
            cells = [cell.quote for cell in question.evidence]
            items = [item.strip() for cell in cells for item in cell.split(SEPARATORS[question.lang].strip())]
            assert not [item for item in items if fold(item) in fold(question.question)]


def test_any_three_names_how_many_are_enough_and_lists_more(sample: tuple[Path, Made]) -> None:
    _, made = sample
    for question in of_type(made, "any_of"):
        assert question.enough == 3
        assert 3 < len(facts(question)) <= MAX_ITEMS


def test_two_hops_read_the_first_row_before_the_second(sample: tuple[Path, Made]) -> None:
    _, made = sample
    tables = []
    for question in of_type(made, "two_hops"):
        *_, hop, last = question.statements
        (end,) = re.findall(r"_name, \w+ FROM (\w+) WHERE", last)
        tables.append(end)
        by_text = re.match(r"SELECT (treatment FROM disease|indication FROM drugs_info) ", hop)
        assert by_text or re.match(rf"SELECT \w+_name FROM {end} WHERE .* LIKE ", hop), question
    assert 0.3 < tables.count("drugs_info") / len(tables) < 0.7


def test_rows_that_say_nothing_in_a_column_are_asked_for(sample: tuple[Path, Made]) -> None:
    path, made = sample
    asked = [question for question in of_type(made, "negation") if "IS NULL" in (question.sql or "")]
    catalog = read_catalog(path)
    for question in asked:
        (column,) = re.findall(r"\((\w+) IS NULL OR \1 = ''\)$", question.statements[-1])
        for item in question.evidence:
            row = catalog.find(item.table, item.quote)
            assert row and not row.values.get(column), question


def test_what_rows_lack_is_asked_in_all_ways() -> None:
    drugs: list[dict[str, object]] = [
        {"id": n, "med_name": name, "cate_name": cate, "indication": use, "storage": storage}
        for n, (name, cate, use, storage) in enumerate(
            [
                ("感冒灵颗粒", "中成药；解热药", "感冒", "密封"),
                ("感冒灵胶囊", "中成药", "感冒；头痛", None),
                ("布洛芬片", "解热药；镇痛药", "头痛", "避光"),
                ("双黄连口服液", "中成药", "感冒", ""),
            ]
        )
    ]
    catalog = Catalog({"drugs_info": drugs, "disease": [{"id": 1, "disease_name": "痛风"}]}, "zh")
    by_split = {"train": {"drugs_info": catalog.askable("drugs_info"), "disease": []}}
    source = Corpus(catalog, wording("zh"), by_split, [], random.Random(0), 50, banks("zh"))
    made = {(draft.sql.partition(" WHERE ")[2], draft.answer) for draft in negation(source)}
    assert ("cate_name LIKE '%中成药%' AND (storage IS NULL OR storage = '')", "感冒灵胶囊；双黄连口服液") in made
    assert ("cate_name LIKE '%中成药%' AND cate_name NOT LIKE '%解热药%'", "感冒灵胶囊；双黄连口服液") in made
    assert any("med_name NOT LIKE '%" in sql for sql, _ in made)


def test_what_rows_lack_is_told_by_what_they_hold_where_each_would_hold_the_other_word() -> None:
    status = ["处方药", "非处方药", "非处方药", "处方药"]
    drugs: list[dict[str, object]] = [
        {"id": n, "med_name": f"感冒灵{n}", "indication": "感冒", "status": text} for n, text in enumerate(status)
    ]
    catalog = Catalog({"drugs_info": drugs, "disease": [{"id": 1, "disease_name": "痛风"}]}, "zh")
    source = Corpus(catalog, wording("zh"), {}, [], random.Random(0), 50, banks("zh"))
    group = (Condition("drugs_info", "indication", "感冒"), list(catalog.rows["drugs_info"]))
    made = {(draft.sql.partition(" AND ")[2], draft.answer) for draft in claimed_rows(source, [group] * 20)}
    assert made == {("status LIKE '%非处方%'", "感冒灵1；感冒灵2"), ("status NOT LIKE '%非处方%'", "感冒灵0；感冒灵3")}


def test_a_claim_about_rows_holds_only_where_no_other_column_says_more() -> None:
    said = [("嗜睡", ""), ("皮疹", ""), ("皮疹", "")]
    asked: list[set[str]] = []
    for precautions in ("", "不宜驾驶车辆"):
        drugs: list[dict[str, object]] = [
            {"id": n, "med_name": f"感冒灵{n}", "indication": "感冒", "adverse_reactions": text, "precautions": more}
            for n, (text, more) in enumerate([*said, ("皮疹", precautions)])
        ]
        catalog = Catalog({"drugs_info": drugs, "disease": [{"id": 1, "disease_name": "痛风"}]}, "zh")
        source = Corpus(catalog, wording("zh"), {}, [], random.Random(0), 50, banks("zh"))
        group = (Condition("drugs_info", "indication", "感冒"), list(catalog.rows["drugs_info"]))
        drafts = [draft for draft in claimed_rows(source, [group] * 20) if "drowsy" in draft.bucket]
        asked.append({draft.answer for draft in drafts})
    assert asked == [{"感冒灵0", "感冒灵1；感冒灵2；感冒灵3"}, set()]


def test_conditions_are_both_needed(sample: tuple[Path, Made]) -> None:
    _, made = sample
    for question in of_type(made, "two_conditions"):
        assert question.statements[-1].count(" LIKE ") == 2
    negations = of_type(made, "negation")
    assert any("NOT LIKE" in (question.sql or "") for question in negations)
    assert any("NOT LIKE" not in (question.sql or "") for question in negations)


def test_what_no_column_holds_is_asked_too(sample: tuple[Path, Made]) -> None:
    _, made = sample
    asked = of_type(made, "unanswerable")
    assert any(" LIKE " in (question.sql or "") and " AND " in (question.sql or "") for question in asked)
    assert 0.07 < len(asked) / len(list(everything(made))) < 0.13


def test_a_topic_is_no_part_of_a_longer_word() -> None:
    reader = TopicReader(Topic(said=("肝和肾",), words=("肝", "肾"), doubtful=("肾上腺",)))
    assert reader.about(["肾功能不全", "头痛"]) == ["肾功能不全"]
    assert reader.about(["肾上腺皮质功能减退", "肝硬化"]) is None
    assert reader.about(["头痛"]) == []


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_every_topic_that_is_asked_about_is_defined(lang: str) -> None:
    topics = banks("zh" if lang == "zh" else "en").topics
    for columns in topics.asks.values():
        for asks in columns.values():
            assert set(asks.topics) <= set(topics.topics)


@pytest.mark.parametrize("task_type", ["part_of_field", "yes_no", "two_conditions", "negation", "two_hops", "any_of"])
def test_a_wrong_answer_of_any_of_these_is_found(sample: tuple[Path, Made], task_type: str) -> None:
    path, made = sample
    catalog = read_catalog(path)
    found = of_type(made, task_type)
    # What is said in everyday words is not looked for in a "no".
    question = next((asked for asked in found if asked.evidence[0].quote in asked.question), found[0])
    words = wording(question.lang)
    wrong = {words.yes: words.no, words.no: words.yes}.get(question.answer, question.answer[:-1])
    with pytest.raises(DataError, match=question.id):
        verify([question.model_copy(update={"answer": wrong})], catalog, path)
