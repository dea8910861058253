"""Run the gold SQL of generated questions, and check that the rows contain the answer and its evidence."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sql_agent.database import Database, Source, open_database
from sql_agent.database.schema import fold
from sql_agent.errors import DataError
from sql_agent.reward.execution_match import ResultRow
from sql_agent.schemas import QueryLimits, Question
from sql_agent.tasks.medical.banks import banks, spoken
from sql_agent.tasks.medical.phrasing import wording
from sql_agent.tasks.medical.questions.catalog import Catalog
from sql_agent.tasks.medical.questions.claims import ClaimReader, claim_readers
from sql_agent.tasks.medical.sample import SEPARATORS
from sql_agent.tasks.medical.tables import NAME_COLUMNS, SCHEMA

PATIENT = QueryLimits(deadline_s=30.0)  # a busy machine must not fail a question
_THREADS = 4


def verify(questions: Iterable[Question], catalog: Catalog, source: Source, limits: QueryLimits | None = None) -> None:
    """Check `questions` against the database `source` of `catalog`.

    Raises DataError for the first question whose SQL fails, whose rows are truncated by `limits`, or whose rows do not
    contain the answer and its evidence.
    """
    for question, problem in problems(questions, catalog, source, limits):
        raise DataError(
            f"question {question.id} ({question.question!r}): {problem}",
            hint="this is a bug of the question generator: please report it",
        )


def problems(
    questions: Iterable[Question], catalog: Catalog, source: Source, limits: QueryLimits | None = None
) -> Iterator[tuple[Question, str]]:
    """Yield each question that fails a check of `verify`, with the problem."""
    fields = {(row.table, row.row_id): row.values for rows in catalog.rows.values() for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        queried = _indexed_copy(source, Path(folder) / "copy.db") if isinstance(source, Path) else source
        with (
            open_database(queried, SCHEMA, limits or PATIENT, hinted=False) as database,
            ThreadPoolExecutor(_THREADS) as pool,
        ):

            def checked(question: Question) -> tuple[Question, str | None]:
                return question, _wrong_quote(question, fields) or _problem_of_rows(question, database)

            # In threads, because most of a statement's time is spent waking the worker process.
            yield from ((question, problem) for question, problem in pool.map(checked, questions) if problem)


def _wrong_quote(question: Question, fields: Mapping[tuple[str, int], Mapping[str, str | None]]) -> str | None:
    for item in question.evidence:
        if item.quote not in (fields.get((item.table, item.row_id), {}).get(item.field) or ""):
            return f"{item.quote!r} is not in {item.table}.{item.field} of row {item.row_id}"
    return None


def _problem_of_rows(question: Question, database: Database) -> str | None:
    if not question.statements:
        return "there is no SQL"
    found = []
    for statement in question.statements:
        answer = database.query(statement)
        if answer.error:
            return f"the SQL failed: {answer.error.message}"
        if answer.truncated:
            return f"the result exceeds {database.limits.max_rows} rows or {database.limits.max_chars} characters"
        found.append(answer.records)
    return _problem(question, found)


def text_problem(question: Question) -> str | None:
    """Return why the answer no longer fits a reworded yes-no question, or None; other types are not checked."""
    if question.task_type != "yes_no" or any(_decides(reader, question) for reader in _claims(question)):
        return None
    return _asked_item(question)


def _indexed_copy(path: Path, copy: Path) -> Path:
    """Copy the database and index the names: thousands of look-ups then take seconds instead of a minute."""
    source, target = sqlite3.connect(path), sqlite3.connect(copy)
    try:
        source.backup(target)
        for table, column in NAME_COLUMNS.items():
            target.execute(f"CREATE INDEX verify_{table} ON {table} ({column})")
        target.commit()
    except sqlite3.OperationalError as error:
        raise DataError(
            f"cannot copy {path} to {copy}: {error}", hint="free space there, or set TMPDIR to another folder"
        ) from error
    finally:
        source.close()
        target.close()
    return copy


def _problem(question: Question, found: list[tuple[ResultRow, ...]]) -> str | None:
    """Return why the rows of the gold SQL do not fit the question, or None."""
    cells = [str(cell) for rows in found for row in rows for cell in row if cell is not None]
    if question.task_type == "unanswerable":
        return f"rows say {cells[0]!r}" if any(cells) else None
    if not question.evidence:
        return "there is no evidence"
    last = [str(cell) for row in found[-1] for cell in row if cell is not None]
    if question.task_type == "aggregate":
        counted, facts = [str(len(question.evidence))], [question.answer]
        same = last == counted == facts
        return None if same else f"the SQL counts {last}, the evidence {counted}, the answer is {facts}"
    missing = (item.quote for item in question.evidence if not any(item.quote in cell for cell in cells))
    if quote := next(missing, None):
        return f"{quote!r} is not in the rows"
    return _yes_no(question) if question.task_type == "yes_no" else _facts(question, last)


def _yes_no(question: Question) -> str | None:
    """Return why the evidence does not decide a yes-no question about a claim or an item, or None."""
    text = question.question
    asked = [reader for reader in _claims(question) if reader.worded(text) and _says(question, reader.item)]
    return None if any(_decides(reader, question) for reader in asked) else _asked_item(question)


def _says(question: Question, item: str) -> bool:
    return any(fold(form) in fold(question.question) for form in spoken(banks(question.lang), item))


def _claims(question: Question) -> Iterator[ClaimReader]:
    """Yield the readers of claims about the columns of the evidence."""
    tables = {item.table for item in question.evidence}
    fields = {item.field for item in question.evidence}
    readers = claim_readers(question.lang)
    return (reader for reader in readers if reader.table in tables and fields <= set(reader.claim.columns))


def _decides(reader: ClaimReader, question: Question) -> bool:
    """Return whether the quoted cells decide the claim in agreement with the answer."""
    decided = reader.decide({item.field: item.quote for item in question.evidence})
    words = wording(question.lang)
    return decided is not None and question.answer == (words.yes if decided[0] else words.no)


def _asked_item(question: Question) -> str | None:
    """Return why the evidence contradicts the answer about an item, or None.

    The evidence of a "yes" is the item in the question; that of a "no" is a whole cell without the item.
    """
    deciding, *more = question.evidence
    if more:
        return "no claim fits the cells"
    words = wording(question.lang)
    asked = fold(question.question)
    if question.answer == words.yes:
        return None if _says(question, deciding.quote) else f"the question does not contain {deciding.quote!r}"
    inside = next((item for item in _items(question, deciding.quote) if fold(item) in asked), None)
    if question.answer != words.no:
        return f"the answer is neither {words.yes!r} nor {words.no!r}"
    return f"the answer is {words.no!r}, but the cell contains {inside!r}" if inside else None


def _facts(question: Question, last: list[str]) -> str | None:
    """Return why the facts are neither the names that the last statement returns nor items of its cells, or None."""
    facts = question.answer.split(SEPARATORS[question.lang])
    if all(item.field == NAME_COLUMNS[item.table] for item in question.evidence):
        return None if sorted(last) == sorted(facts) else f"SQL returns {last}, the answer is {facts}"
    items = [set(_items(question, cell)) for cell in last]
    if question.task_type in {"drug_field", "disease_field", "any_of"}:
        return None if set(facts) in items else f"SQL returns {last}, the answer is {facts}"
    if question.task_type == "negation":
        shared = [fact for fact in facts if sum(fact in cell for cell in items) != 1]
        return f"{shared} are not items of exactly one row" if shared else None
    wanted = [part for fact in facts for part in _parts(question, fact)]
    return next(
        (f"{text!r} is not an item of the rows" for text in wanted if not any(text in cell for cell in items)), None
    )


def _parts(question: Question, fact: str) -> list[str]:
    """Return the name and the items of a fact if the answer is about several rows, else [fact]."""
    marks = wording(question.lang).marks
    several = question.task_type in {"comparison", "two_hops"} and len({item.row_id for item in question.evidence}) > 1
    if not several:
        return [fact]
    name, _, items = fact.partition(marks.name)
    return [name, *items.split(marks.item)]


def _items(question: Question, cell: str) -> list[str]:
    return [part.strip().rstrip("。.").strip() for part in cell.split(SEPARATORS[question.lang].strip())]
