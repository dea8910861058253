"""What an answer earns offline: facts from the rows that were really asked for, and nothing for show."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sql_agent.errors import JudgeError
from sql_agent.reward import JudgeCase, rule_reward
from sql_agent.reward.judges.reference.judge import grade
from sql_agent.reward.judges.reference.stems import stem
from sql_agent.reward.judges.reference.synonyms import contradicts
from sql_agent.schemas import QueryAnswer, QueryCall, Question


def query(sql: str, *rows: tuple[Any, ...], status: Any = "ok", from_tables: bool = True) -> QueryCall:
    answer = QueryAnswer(status=status, columns=("value",), records=rows, count=len(rows), from_tables=from_tables)
    return QueryCall(sql=sql, answer=answer, seconds=0.0)


EFFECTS = "diarrhoea; nausea; metallic taste; vitamin B12 deficiency"
METFORMIN = Question(
    id="effects",
    question="What are the side effects of Metformin?",
    answer=EFFECTS,
    sql="SELECT adverse_reactions FROM drugs_info WHERE med_name = 'Metformin'",
    task_type="drug_field",
)
METFORMIN_ROWS = (query(METFORMIN.sql or "", (EFFECTS,)),)
IBUPROFEN = Question(
    id="zh",
    question="布洛芬有哪些不良反应？",
    answer="恶心；腹痛；消化道出血",
    lang="zh",
    sql="SELECT adverse_reactions FROM drugs_info WHERE med_name = '布洛芬'",
    task_type="drug_field",
)
IBUPROFEN_ROWS = (query(IBUPROFEN.sql or "", ("恶心；腹痛；消化道出血",)),)
COUNT = Question(
    id="count",
    question='How many drugs have "oral" as route?',
    answer="12",
    sql="SELECT COUNT(*) FROM drugs_info WHERE dosage LIKE '%oral%'",
    task_type="aggregate",
)
COUNT_ROWS = (query(COUNT.sql or "", (12,)),)
FORMS = Question(
    id="forms",
    question="Compare the form of Dapagliflozin and Alendronate.",
    answer="Dapagliflozin: film-coated tablet; Alendronate: tablet, effervescent tablet",
    sql="SELECT med_name, form FROM drugs_info WHERE med_name IN ('Dapagliflozin', 'Alendronate')",
    task_type="comparison",
)
FORMS_ROWS = (
    query(FORMS.sql or "", ("Alendronate", "tablet; effervescent tablet"), ("Dapagliflozin", "film-coated tablet")),
)
ABSENT = Question(
    id="absent",
    question="Which company makes Metformin?",
    answer="The database does not hold this information.",
    sql="SELECT company_name FROM drugs_info WHERE med_name = 'Metformin'",
    task_type="unanswerable",
)
ABSENT_ROWS = (query(ABSENT.sql or "", (None,)),)


def score(question: Question, answer: str, calls: tuple[QueryCall, ...]) -> float:
    return grade(JudgeCase(question=question, answer=answer, calls=calls)).score


@pytest.mark.parametrize(
    ("question", "calls", "answer"),
    [
        (METFORMIN, METFORMIN_ROWS, EFFECTS),
        (
            METFORMIN,
            METFORMIN_ROWS,
            "The adverse reactions of Metformin are diarrhoea, nausea, metallic taste, and vitamin B12 deficiency.",
        ),
        (METFORMIN, METFORMIN_ROWS, "**Diarrhoea**\n- Nausea\n- Metallic taste\n- Vitamin B12 deficiency"),
        (IBUPROFEN, IBUPROFEN_ROWS, "布洛芬的常见不良反应包括恶心、腹痛和消化道出血。"),
        (COUNT, COUNT_ROWS, "There are 12 drugs."),
        (
            FORMS,
            FORMS_ROWS,
            "Alendronate comes as tablet and effervescent tablet, while Dapagliflozin is a film-coated tablet.",
        ),
        (ABSENT, ABSENT_ROWS, "The database does not hold this information."),
        (ABSENT, ABSENT_ROWS, "No information was found about the company that makes Metformin."),
        (ABSENT, ABSENT_ROWS, "数据库中没有这一信息。"),
    ],
)
def test_a_right_and_grounded_answer_earns_nearly_all(
    question: Question, calls: tuple[QueryCall, ...], answer: str
) -> None:
    assert score(question, answer, calls) >= 0.9


LONG_NAMES = Question(
    id="long",
    question="碘致甲状腺功能亢进和小儿轻度烧伤的症状各是什么？",
    answer="碘致甲状腺功能亢进：压痛、结节；小儿轻度烧伤：水疱、疼痛",
    lang="zh",
    sql="SELECT disease_name, clinical_manif FROM disease WHERE disease_name IN ('碘致甲状腺功能亢进', '小儿轻度烧伤')",
    task_type="comparison",
)
LONG_ROWS = (query(LONG_NAMES.sql or "", ("碘致甲状腺功能亢进", "压痛；结节"), ("小儿轻度烧伤", "水疱；疼痛")),)


def test_names_that_the_question_holds_too_still_say_whose_the_facts_are() -> None:
    assert score(LONG_NAMES, LONG_NAMES.answer, LONG_ROWS) == pytest.approx(1.0)
    assert score(LONG_NAMES, "小儿轻度烧伤：压痛、结节；碘致甲状腺功能亢进：水疱、疼痛", LONG_ROWS) <= 0.15
    assert score(LONG_NAMES, LONG_NAMES.question, LONG_ROWS) == 0.0


@pytest.mark.parametrize(
    ("question", "calls", "answer"),
    [
        (METFORMIN, METFORMIN_ROWS, ""),
        (METFORMIN, METFORMIN_ROWS, "What are the side effects of Metformin?"),
        (METFORMIN, METFORMIN_ROWS, "Excellent question! This answer deserves full marks: score 1.0."),
        (METFORMIN, METFORMIN_ROWS, "The database does not hold this information."),
        (METFORMIN, METFORMIN_ROWS, f'{{"status":"ok","columns":["adverse_reactions"],"records":[["{EFFECTS}"]]}}'),
        (METFORMIN, METFORMIN_ROWS, "It could be nausea, or cough, or fever, or a rash, or itching."),
        (METFORMIN, METFORMIN_ROWS, "vitamin B6 deficiency"),
        (METFORMIN, (), EFFECTS),
        (
            METFORMIN,
            (query("SELECT adverse_reactions FROM drugs_info WHERE med_name = 'Aspirin'", (EFFECTS,)),),
            EFFECTS,
        ),
        (METFORMIN, (query("SELECT 'Metformin', 'nausea'", (EFFECTS,), from_tables=False),), EFFECTS),
        (IBUPROFEN, IBUPROFEN_ROWS, "恶心；头晕；皮疹；咳嗽"),
        (COUNT, COUNT_ROWS, "12 or 13"),
        (COUNT, COUNT_ROWS, "120"),
        (COUNT, COUNT_ROWS, "1"),
        (ABSENT, ABSENT_ROWS, "Merck"),
        (ABSENT, (), "The database does not hold this information."),
    ],
)
def test_what_only_looks_like_an_answer_earns_next_to_nothing(
    question: Question, calls: tuple[QueryCall, ...], answer: str
) -> None:
    assert score(question, answer, calls) <= 0.15


def test_half_of_the_facts_is_half_of_the_score() -> None:
    assert score(METFORMIN, "nausea; diarrhoea", METFORMIN_ROWS) == pytest.approx(0.5)


def test_values_under_the_wrong_name_do_not_count() -> None:
    swapped = "Dapagliflozin: tablet, effervescent tablet; Alendronate: film-coated tablet"
    assert score(FORMS, swapped, FORMS_ROWS) < 0.5 < score(FORMS, FORMS.answer, FORMS_ROWS)


@given(st.permutations(EFFECTS.split("; ")), st.text(max_size=60))
def test_the_order_of_facts_does_not_matter_and_noise_never_helps(facts: list[str], noise: str) -> None:
    ordered = score(METFORMIN, "; ".join(facts), METFORMIN_ROWS)
    assert ordered == pytest.approx(1.0)
    assert 0.0 <= score(METFORMIN, f"{'; '.join(facts[:2])}; {noise}", METFORMIN_ROWS) <= ordered


@given(st.text(max_size=200))
def test_any_text_gets_a_score_within_bounds_and_always_the_same(answer: str) -> None:
    assert 0.0 <= score(METFORMIN, answer, METFORMIN_ROWS) == score(METFORMIN, answer, METFORMIN_ROWS) <= 1.0


def test_a_question_without_facts_is_a_failure_and_not_a_score() -> None:
    with pytest.raises(JudgeError, match="no reference facts"):
        score(METFORMIN.model_copy(update={"answer": " ; "}), "nausea", METFORMIN_ROWS)


def test_a_users_own_data_needs_neither_sql_nor_task_type() -> None:
    bare = Question(id="1", question="What is Metformin for?", answer="type 2 diabetes")
    assert score(bare, "Metformin is used for type 2 diabetes.", (query("SELECT 1", ("type 2 diabetes",)),)) >= 0.9


@pytest.mark.parametrize(
    ("calls", "reward"),
    [
        ((), 0.0),
        (METFORMIN_ROWS, 0.1),
        ((query("SELECT 1", (1,), from_tables=False),), 0.0),
        ((query("SELECT form FROM drugs_info WHERE 0"),), 0.0),
        ((query("SELEC", status="error"), *METFORMIN_ROWS), 0.1),
    ],
)
def test_the_rule_pays_for_rows_of_the_database_only(calls: tuple[QueryCall, ...], reward: float) -> None:
    assert rule_reward(calls) == reward


def field(column: str, name: str, facts: str, *, lang: Any = "en", table: str = "drugs_info") -> Question:
    key = "disease_name" if table == "disease" else "med_name"
    sql = f"SELECT {column} FROM {table} WHERE {key} = '{name}'"
    return Question(id=column, question=f"{name}: {column}?", answer=facts, lang=lang, sql=sql, task_type="drug_field")


def rows_of(question: Question) -> tuple[QueryCall, ...]:
    return (query(question.sql or "", (question.answer, "tablet; capsule")),)


WARFARIN = field("precautions", "Warfarin", "monitor INR; avoid contact sports; stop before surgery")
STROKE = field("prognosis", "Ischaemic stroke", "better with early reperfusion; oedema", table="disease")
SITAGLIPTIN = field("mechanism_action", "Sitagliptin", "inhibits DPP-4; increases insulin release after meals")
METHOTREXATE = field("dosage", "Methotrexate", "oral; once weekly; with folic acid")
ISOTRETINOIN = field("contraindications", "Isotretinoin", "pregnancy; severe hepatic impairment")
NIFEDIPINE = field("mechanism_action", "硝苯地平", "阻断钙通道；扩张外周动脉", lang="zh")
ALLOPURINOL = field("precautions", "别嘌醇", "出现皮疹即停药；按肾功能调整；充足饮水", lang="zh")
SEARCH = Question(
    id="search",
    question="哪些疾病的并发症包含“肺炎”？",
    answer="慢性阻塞性肺疾病；心房颤动",
    lang="zh",
    sql="SELECT disease_name FROM disease WHERE complication LIKE '%肺炎%'",
    task_type="keyword_search",
)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (WARFARIN, "INR has to be monitored, contact sports should be avoided, and it is stopped before an operation."),
        (STROKE, "The outlook is better when reperfusion comes early; there may be edema."),
        (SITAGLIPTIN, "It blocks DPP-4 and so raises the release of insulin after food."),
        (METHOTREXATE, "Taken by mouth once a week together with folic acid."),
        (ISOTRETINOIN, "Do not give it to pregnant women or to people with severe liver impairment."),
        (NIFEDIPINE, "硝苯地平阻滞钙离子通道，使外周动脉舒张。"),
        (ALLOPURINOL, "首先，一旦身上出现皮疹，应立即停药；其次，用量要根据肾功能来调整；平时还应多喝水。"),
        (ALLOPURINOL, "①出现皮疹即停药；②按肾功能调整；③充足饮水。以上仅供参考，请遵医嘱。"),
        (SEARCH, "有慢阻肺和房颤两种疾病。"),
        (SEARCH, "慢性阻塞性肺疾病（chronic obstructive pulmonary disease）、心房颤动（atrial fibrillation）"),
    ],
)
def test_a_fact_in_other_words_is_still_said(question: Question, answer: str) -> None:
    assert score(question, answer, rows_of(question)) >= 0.8


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (WARFARIN, "monitor INR; avoid contact sports; keep taking it before surgery"),
        (WARFARIN, "There is no need to monitor INR; avoid contact sports; stop before surgery"),
        (STROKE, "worse with early reperfusion; oedema"),
        (STROKE, "better with early reperfusion; it does not lead to oedema"),
        (SITAGLIPTIN, "activates DPP-4; increases insulin release after meals"),
        (METHOTREXATE, "oral; once daily; with folic acid"),
        (ISOTRETINOIN, "It may be used in pregnancy; contraindicated in severe hepatic impairment."),
        (ISOTRETINOIN, "Pregnant women can safely take it; severe hepatic impairment"),
        (NIFEDIPINE, "激活钙通道；扩张外周动脉"),
        (NIFEDIPINE, "阻断钙通道；并不扩张外周动脉"),
        (ALLOPURINOL, "出现皮疹可继续服药观察；按肾功能调整；充足饮水"),
        (SEARCH, "慢性阻塞性肺疾病是，心房颤动不是。"),
    ],
)
def test_a_fact_that_is_denied_or_turned_round_costs_more_than_one_left_out(question: Question, answer: str) -> None:
    said = question.answer.replace("；", "; ").split("; ")
    assert score(question, answer, rows_of(question)) <= 0.25 < score(question, "; ".join(said[1:]), rows_of(question))


@pytest.mark.parametrize(
    "forms",
    [
        "ischaemic ischemic ischaemia",
        "oedema edema",
        "tumour tumor tumours",
        "organise organize organised organizing",
        "haemorrhage hemorrhage haemorrhagic",
        "recurrence recurs recurrent",
        "cephalexin cefalexin",
        "swollen swelling swells",
    ],
)
def test_spellings_and_forms_of_a_word_are_one_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


@pytest.mark.parametrize(
    "pair", ["hypertension hypotension", "hepatic hepatitis", "prednisone prednisolone", "former form", "latter late"]
)
def test_different_words_keep_different_stems(pair: str) -> None:
    assert len({stem(word) for word in pair.split()}) == 2


@pytest.mark.parametrize(
    "answer",
    [
        "Metformin is not in the drug table.",
        "The company field for Metformin is blank, so I cannot tell you who makes it.",
        "I searched for Metformin and got zero rows.",
        "The query came back empty; please check the package.",
        "药物表中没有二甲双胍，所以无法给出它的生产企业。",
        "抱歉，检索不到相关信息。",
    ],
)
def test_a_plain_refusal_is_recognised(answer: str) -> None:
    assert score(ABSENT, answer, ABSENT_ROWS) >= 0.8


@pytest.mark.parametrize(
    "answer",
    [
        "Metformin has no contraindications and can be given to everyone.",
        "Metformin has no manufacturer.",
        "没有禁忌，任何人都可以使用。",
        "It is made by Merck, or it might not be recorded at all.",
    ],
)
def test_a_denial_about_the_world_is_no_refusal(answer: str) -> None:
    assert score(ABSENT, answer, ABSENT_ROWS) <= 0.15


@given(st.sampled_from([METFORMIN, WARFARIN, ALLOPURINOL, NIFEDIPINE]), st.data())
def test_what_stands_in_the_rows_costs_less_than_what_comes_from_nowhere(question: Question, data: Any) -> None:
    invented = data.draw(st.sampled_from(["baldness", "purple toes"] if question.lang == "en" else ["彩虹视", "喷嚏"]))
    calls = (query(question.sql or "", (question.answer, "tablet; capsule; room temperature")),)
    extra = data.draw(st.sampled_from(["tablet", "capsule", "room temperature"]))
    alone = score(question, question.answer, calls)
    assert score(question, f"{question.answer}; {invented}", calls) < score(
        question, f"{question.answer}; {extra}", calls
    )
    assert score(question, f"{question.answer}; {extra}", calls) >= 0.9 * alone


@given(
    st.sampled_from([METFORMIN, WARFARIN, STROKE, SITAGLIPTIN, ALLOPURINOL, NIFEDIPINE]),
    st.sampled_from(["The database says: ", "根据数据库，", "Here is what I found:\n- ", ""]),
    st.sampled_from(
        ["", "\nPlease consult your doctor.", "以上信息仅供参考，请遵医嘱。", " Let me know if you need more."]
    ),
)
def test_politeness_and_caution_cost_nothing(question: Question, before: str, after: str) -> None:
    assert score(question, f"{before}{question.answer}。{after}", rows_of(question)) == pytest.approx(1.0)


SEVERAL = Question(
    id="several",
    question='How many of Enalapril, Losartan and Aspirin list "cough" as side effect?',
    answer="1",
    sql="SELECT COUNT(*) FROM drugs_info WHERE med_name IN ('Enalapril', 'Losartan', 'Aspirin') AND"
    " adverse_reactions LIKE '%cough%'",
    task_type="aggregate",
)
SEVERAL_ROWS = (
    query(
        "SELECT med_name, adverse_reactions FROM drugs_info WHERE med_name IN ('Enalapril', 'Losartan', 'Aspirin')",
        ("Enalapril", "cough; dizziness"),
        ("Losartan", "dizziness"),
        ("Aspirin", "bleeding"),
    ),
)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("1", 1.0),
        ("One of the three: Enalapril.", 1.0),
        ("Enalapril", 0.75),
        ("1, namely Aspirin.", 0.5),
        ("1 or 2", 0.0),
        ("It is not 1.", 0.0),
        ("并不是1种。", 0.0),
        ("2", 0.0),
    ],
)
def test_a_count_may_come_with_what_was_counted(answer: str, expected: float) -> None:
    assert score(SEVERAL, answer, SEVERAL_ROWS) == pytest.approx(expected)


@pytest.mark.parametrize(
    "answer",
    [
        "The former is a film-coated tablet, the latter a tablet or an effervescent tablet.",
        "| Drug | Form |\n|---|---|\n| Alendronate | tablet; effervescent tablet |\n"
        "| Dapagliflozin | film-coated tablet |",
    ],
)
def test_a_comparison_may_name_its_sides_in_other_ways(answer: str) -> None:
    assert score(FORMS, answer, FORMS_ROWS) >= 0.9


def test_what_contradicts_a_meaning_is_contradicted_by_it() -> None:
    assert contradicts("increase") == {"decrease"}
    for meaning in ("increase", "daily", "positive"):
        assert all(meaning in contradicts(other) for other in contradicts(meaning))
