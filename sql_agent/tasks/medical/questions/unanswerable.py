"""Questions that the database cannot answer: an empty field, or a drug or disease that it does not have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sql_agent.database.schema import fold
from sql_agent.tasks.medical.questions.draft import Corpus, Draft, TaskType, name_is, quoted
from sql_agent.tasks.medical.tables import NAME_COLUMNS

_POOLS: dict[str, TaskType] = {"drugs_info": "drug_field", "disease": "disease_field"}


def unanswerable(source: Corpus) -> Iterator[Draft]:
    """Worded like the questions about a field; the gold SQL returns NULL or no row."""
    for table in source.catalog.rows:
        yield from _empty_fields(source, table)
        yield from _absent_names(source, table)


def unanswerable_naturally(source: Corpus) -> Iterator[Draft]:
    """Yield the same, and questions that no column answers."""
    yield from unanswerable(source)
    for table, kinds in source.natural.patterns.lacking.items():
        text = "description" if table == "drugs_info" else "overview"
        if text in source.catalog.columns[table]:
            for kind, asks in kinds.items():
                yield from _lacking(source, table, text, kind, asks.word)


def _lacking(source: Corpus, table: str, text: str, kind: str, word: str) -> Iterator[Draft]:
    for entity in source.some(table):
        if not any(fold(word) in fold(value or "") for value in entity.values.values()):
            yield Draft(
                task_type="unanswerable",
                pool=f"lacking {kind}",
                column=(table, text),
                slots={"name": entity.name},
                sql=f"SELECT {text} FROM {table} WHERE {name_is(entity)} AND {text} LIKE {quoted(f'%{word}%')}",
                answer=source.wording.no_answer,
                evidence=(),
                entities=frozenset({entity.key}),
                bucket=f"{table}, no column",
                subject=entity,
            )


def _empty_fields(source: Corpus, table: str) -> Iterator[Draft]:
    rows = source.catalog.rows[table]
    for column in source.columns(table):
        somewhere = any(entity.values.get(column) for entity in rows)
        for entity in source.some(table):
            if not entity.values.get(column):
                empty = _draft(source, table, column, entity.name, f"{table}, {'some' if somewhere else 'all'} empty")
                yield replace(empty, subject=entity)


def _absent_names(source: Corpus, table: str) -> Iterator[Draft]:
    words = source.wording
    invented = [stem + ending for stem in words.invented_stems for ending in words.invented_endings[table]]
    for kind, names in (("real", words.absent[table]), ("invented", invented)):
        for name in names:
            if not _occurs(source, name):
                for column in source.columns(table):
                    draft = _draft(source, table, column, name, f"{table}, {kind} name")
                    yield replace(draft, other_sql=_searched_again(source, draft, table, name))


def _searched_again(source: Corpus, draft: Draft, table: str, name: str) -> tuple[str, ...]:
    """Return the statement for the name, then one for a part of it: an answer is refused after a second search."""
    name_column = NAME_COLUMNS[table]
    parts = [name, name[: (len(name) + 1) // 2], name[len(name) // 2 :]]
    unknown = [part for part in parts if len(part) > 1 and not source.catalog.rows_with(table, name_column, part)]
    select = draft.sql.partition(" WHERE ")[0]
    return tuple(f"{draft.sql}; {select} WHERE {name_column} LIKE {quoted(f'%{part}%')}" for part in unknown)


def _occurs(source: Corpus, name: str) -> bool:
    """Return whether a row has this name, a longer one, or a part of it."""
    return any(source.catalog.rows_with(table, NAME_COLUMNS[table], name) for table in source.catalog.rows) or bool(
        source.mentioned([name])
    )


def _draft(source: Corpus, table: str, column: str, name: str, bucket: str) -> Draft:
    return Draft(
        task_type="unanswerable",
        pool=_POOLS[table],
        column=(table, column),
        slots={"name": name},
        sql=f"SELECT {column} FROM {table} WHERE {NAME_COLUMNS[table]} = {quoted(name)}",
        answer=source.wording.no_answer,
        evidence=(),
        entities=frozenset({(table, name)}),
        bucket=bucket,
    )
