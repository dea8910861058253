"""Derive missing evidence of prose references from the texts that a reference quotes from rows of the database."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from sql_agent.database import Database, DatabasePool
from sql_agent.database.cell_texts import LETTER
from sql_agent.database.schema import fold, quoted
from sql_agent.reward.judges.items import Reader, Words, is_prose
from sql_agent.schemas import Evidence, Lang, QueryAnswer, Question

_NAME = re.compile(r"\w+")
_SHORTEST = 2  # minimum length of a cell; nearly every text contains a single character
_ITEM_END = re.compile(r"[;；、\n]")


def with_derived_evidence(
    questions: Sequence[Question], databases: DatabasePool, words: Mapping[Lang, Words]
) -> list[Question]:
    """Return `questions`, with derived evidence for each prose reference that has no evidence.

    `words` are the task's, by language: a refusal has no evidence.
    """
    readers = {lang: Reader(of) for lang, of in words.items()}
    return [_with_evidence(q, databases) if lacks_evidence(q, readers[q.lang]) else q for q in questions]


def with_extractive_answers(
    questions: Sequence[Question], databases: DatabasePool, words: Mapping[Lang, Words]
) -> list[Question]:
    """Return `questions` with each prose reference replaced by the quotes of its evidence, one per line.

    The judge "facts" rewards such answers. Missing evidence is derived. A reference without evidence stays unchanged.
    """
    return [
        q.model_copy(update={"answer": "\n".join(item.quote for item in q.evidence)})
        if q.evidence and is_prose(q.answer, q.lang)
        else q
        for q in with_derived_evidence(questions, databases, words)
    ]


def lacks_evidence(question: Question, reader: Reader) -> bool:
    """Return whether the reference is prose, no refusal, and has no evidence, from which the judge takes the facts."""
    is_missing = not question.evidence and is_prose(question.answer, question.lang)
    return is_missing and not reader.is_refusal(question.answer)


def derive_evidence(question: Question, database: Database) -> tuple[Evidence, ...]:
    """Return each distinct cell of the gold SQL's result that the reference quotes as a whole.

    A cell that the question also quotes, such as a name, is not part of the answer. The id of a cell's row is in the
    column `id` of the result; without this column, only a cell whose text is unique in its column is used. For a
    question without gold SQL, return the items that the reference quotes from one cell of each row that the question
    names.
    """
    if not question.statements:
        return tuple(dict.fromkeys(_of_named_rows(question, database)))
    found = [
        evidence for sql in question.statements for evidence in _cells(sql, database.query(sql), question, database)
    ]
    return tuple(dict.fromkeys(found))


def _with_evidence(question: Question, databases: DatabasePool) -> Question:
    with databases.of(question.database) as database:
        return question.model_copy(update={"evidence": derive_evidence(question, database)})


def _cells(sql: str, answer: QueryAnswer, question: Question, database: Database) -> Iterator[Evidence]:
    names = [fold(name) for name in answer.columns]
    mentioned = set(map(fold, _NAME.findall(sql)))
    tables = {table: columns for table, columns in database.schema.columns.items() if fold(table) in mentioned}
    for record in answer.records:
        row_id = record[names.index("id")] if "id" in names else None
        for name, cell in zip(names, record, strict=True):
            if not isinstance(cell, str) or len(cell) < _SHORTEST:
                continue
            if cell not in question.answer or cell in question.question:
                continue
            owners = [table for table, columns in tables.items() if name in map(fold, columns)]
            for table in owners[:1] if len(owners) == 1 else []:
                if (found := _row(table, name, cell, row_id, database)) is not None:
                    yield Evidence(table=table, row_id=found, field=name, quote=cell)


def _of_named_rows(question: Question, database: Database) -> Iterator[Evidence]:
    """Yield the items that the reference quotes from the most quoted cell of each row that the question names."""
    named = [value for value in database.named_values(question.question) if value.operator == "="]
    for table, column, name in ((*place, value.value) for value in named for place in value.columns):
        text, key = database.dialect.text_literal(name), database.schema.row_key(table)
        if key is None:
            continue
        where = f"WHERE {quoted(column)} = {text} LIMIT 2"
        answer = database.query(f"SELECT {quoted(key)}, {quoted(table)}.* FROM {quoted(table)} {where}")
        if answer.count != 1:
            continue
        row_id, *cells = answer.records[0]
        row = zip(answer.columns[1:], cells, strict=True)
        quotes = {field: _quoted_items(cell, question) for field, cell in row if isinstance(cell, str)}
        best = max(quotes, key=lambda field: sum(map(len, quotes[field])), default=None)
        if best is not None and isinstance(row_id, int):
            yield from (Evidence(table=table, row_id=row_id, field=best, quote=quote) for quote in quotes[best])


def _quoted_items(cell: str, question: Question) -> list[str]:
    """Return the items of `cell` that occur as whole words in the reference, but not in the question."""
    items = [item.strip() for item in _ITEM_END.split(cell)]
    return [item for item in items if len(item) >= _SHORTEST and _has(question.answer, item)
            and not _has(question.question, item)]  # fmt: skip


def _has(text: str, item: str) -> bool:
    """Return whether `item` occurs in `text` as whole words and numbers: not "5 mg" in "2.5 mg"."""
    return re.search(rf"(?<!{LETTER})(?<!\d[.,]){re.escape(item)}(?!{LETTER})", text, re.IGNORECASE) is not None


def _row(table: str, column: str, cell: str, row_id: object, database: Database) -> int | None:
    """Return `row_id` if that row has `cell` in `column`, else the id of the only row with `cell`, else None."""
    text, key = database.dialect.text_literal(cell), quoted(database.schema.row_key(table) or "id")
    answer = database.query(f"SELECT {key} FROM {quoted(table)} WHERE {quoted(column)} = {text} LIMIT 20")
    ids = [record[0] for record in answer.records if isinstance(record[0], int)]
    if row_id in ids:
        return int(str(row_id))
    return ids[0] if len(ids) == 1 else None
