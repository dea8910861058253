"""Questions with the rows that their queries returned, made without a database."""

from __future__ import annotations

from collections.abc import Sequence

from sql_agent.judge_eval.answers import Example, Reading
from sql_agent.schemas import Lang, QueryAnswer, QueryCall, Question

REFUSAL: dict[Lang, str] = {"en": "The database does not hold this information.", "zh": "数据库中没有这一信息。"}
_SEPARATOR: dict[Lang, str] = {"en": "; ", "zh": "；"}


def example(id_: str, facts: Sequence[str], lang: Lang = "en", enough: int | None = None) -> Example:
    """A question whose answer is `facts`, which stand in one cell of one row; `enough` of them are a full answer."""
    answer = _SEPARATOR[lang].join(facts)
    return _example(id_, answer, lang, answer, "drug_field", enough)


def unanswerable(id_: str, lang: Lang = "en") -> Example:
    return _example(id_, REFUSAL[lang], lang, None, "unanswerable")


def _example(id_: str, answer: str, lang: Lang, cell: str | None, task_type: str, enough: int | None = None) -> Example:
    question = Question(
        id=id_,
        question=f"What is stored about {id_}?" if lang == "en" else f"{id_}记录了什么？",
        answer=answer,
        lang=lang,
        sql=f"SELECT storage FROM drugs_info WHERE med_name = '{id_}'",
        task_type=task_type,
        enough=enough,
    )
    sql = question.sql or ""
    whole = _reading(sql, (7, id_, cell), (8, "other", "x"))
    return Example(question, _reading(sql, (cell,)), _reading(sql, (7, id_, cell)), whole)


def _reading(sql: str, *records: tuple[str | int | None, ...]) -> Reading:
    columns = tuple(f"c{i}" for i in range(len(records[0])))
    answer = QueryAnswer(status="ok", columns=columns, records=records, count=len(records), from_tables=True)
    return Reading((QueryCall(sql=sql, answer=answer, seconds=0.0),))
