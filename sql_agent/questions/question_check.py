"""Check questions by their gold SQL: rows, evidence, and the judge's score of the reference answer."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, NamedTuple

from sql_agent.database import Database, DatabasePool
from sql_agent.database.provenance import evidence_read, row_names
from sql_agent.database.schema import Naming, quoted
from sql_agent.errors import ConfigError, DataError, JudgeError
from sql_agent.judge_eval.answers import Example, Reading
from sql_agent.questions.derived_evidence import derive_evidence, lacks_evidence
from sql_agent.reward import Judge, JudgeCase
from sql_agent.reward.judges.items import Reader, Words, is_prose
from sql_agent.schemas import Evidence, Lang, QueryAnswer, QueryCall, Question

Form = Literal["facts", "number", "yes or no", "refusal", "prose"]

# Minimum share of gold queries that return rows, and minimum mean score of the references. No model can earn a higher
# mean reward than the references.
REQUIRED_SHARE = 0.9
_MIN_CHECKED = 8  # minimum number of checked questions, even after the time limit
_COLUMNS = re.compile(r"\A\s*SELECT\b.*?\bFROM\b", re.IGNORECASE | re.DOTALL)
_TABLE = re.compile(r"""\b(?:FROM|JOIN)\s+(\w+|`(?:[^`]|``)+`|"(?:[^"]|"")+")""", re.IGNORECASE)
_NO_CELL = frozenset({"unknown_table", "unknown_column", "forbidden_table"})


@dataclass(frozen=True)
class CheckedQuestion:
    """The result of checking one question.

    question      the question, with derived evidence if it had none
    database      the queried database
    form          kind of reference answer
    returns_rows  whether all gold statements run and one of them returns rows
    failure       error message of a gold statement; `failure_kind` is the kind of error
    earned        score of the reference (0.0–1.0) or None without a judge; `reason` and `hint` explain a low score
    """

    question: Question
    database: str
    form: Form
    returns_rows: bool = False
    failure: str | None = None
    failure_kind: str = ""
    earned: float | None = None
    reason: str = ""
    hint: str | None = None

    @property
    def needs_rows(self) -> bool:
        """Whether the gold SQL must return rows. The gold SQL of a refusal must only run without an error."""
        return bool(self.question.statements) and (self.form != "refusal" or self.failure is not None)


def check_questions(
    questions: Sequence[Question],
    databases: DatabasePool,
    words: Mapping[Lang, Words],
    judge: Judge | None,
    *,
    seconds: float | None = None,
    on_done: Callable[[int], None] = lambda done: None,
) -> list[CheckedQuestion]:
    """Run the gold SQL of each question, and grade the reference answer with `judge` unless `judge` is None.

    After `seconds` no further question is checked. `on_done` receives the number of checked questions.
    """
    readers = {lang: Reader(of_lang) for lang, of_lang in words.items()}
    deadline = None if seconds is None else time.monotonic() + seconds

    async def check_all() -> list[CheckedQuestion]:
        checked: list[CheckedQuestion] = []
        for question in questions:
            if deadline is not None and len(checked) >= _MIN_CHECKED and time.monotonic() > deadline:
                break
            with databases.of(question.database) as database:
                checked.append(await _check(question, database, readers[question.lang], judge))
            on_done(len(checked))
        return checked

    return asyncio.run(check_all())


def _calls(statements: Iterable[str], database: Database) -> tuple[QueryCall, ...]:
    return tuple(QueryCall(sql=sql, answer=database.query(sql), seconds=0.0) for sql in statements)


def read_example(question: Question, database: Database, reader: Reader, names: Mapping[str, Naming]) -> Example:
    """Return `question` with the results of its gold SQL and of the other queries that `Example` lists.

    Raises DataError if the question has no gold SQL or the gold SQL fails.
    """
    if not question.statements:
        raise DataError(
            f"question {question.id!r} has no gold SQL, so there are no rows to grade answers against",
            hint="add the gold SQL of each question, or evaluate on labelled answers with --labels FILE",
        )
    conclusion = reader.number_or_yes_no(question.answer, question.question)

    def reading(statements: Iterable[str]) -> Reading:
        calls = _calls(statements, database)
        read = evidence_read(database, calls, question.evidence, conclusion, question.statements, names)
        return Reading(calls, read)

    gold = reading(question.statements)
    failure = next((call.answer.error for call in gold.calls if call.answer.error), None)
    if failure is not None:
        raise DataError(
            f"the SQL of question {question.id!r} fails on {database.source}: {failure.message}",
            hint="check that --db is the database of these questions; raise database.deadline_s for a slow database",
        )
    tables = dict.fromkeys(table for sql in question.statements for table in _TABLE.findall(sql))
    every_column = (_COLUMNS.sub("SELECT * FROM", sql, count=1) for sql in question.statements)
    whole_tables = (f"SELECT * FROM {table}" for table in tables)
    by_heart = {kind: reading(statements) for kind, statements in _without_reading(question, database).items()}
    named = row_names(question.evidence, database, names)
    return Example(question, gold, reading(every_column), reading(whole_tables), by_heart, named)


def _without_reading(question: Question, database: Database) -> dict[str, list[str]]:
    """Return {name, such as "by_heart_constant": a statement that only seems to read the evidence of the question}."""
    if not question.evidence:
        return {}
    text = database.dialect.text_literal
    cells = {(e.table, e.row_id, e.field): e.quote for e in question.evidence}
    columns = {(table, field): row_id for table, row_id, field in sorted(cells)}  # with the largest row id
    return {
        "by_heart_computed": [
            f"SELECT COUNT({quoted(f)}), SUM(LENGTH({quoted(f)})), MAX({quoted(f)} <> '') FROM {quoted(t)}"
            for t, f in columns
        ],
        "by_heart_constant": [
            f"SELECT {text(quote)} FROM {quoted(t)} WHERE {_key(database, t)} = {row} AND {quoted(f)} IS NOT NULL"
            for (t, row, f), quote in cells.items()
        ],
        "by_heart_another_row": [
            f"SELECT {quoted(f)} FROM {quoted(t)} WHERE {_key(database, t)} > {row} LIMIT 10"
            for (t, f), row in columns.items()
        ],
    }


def _key(database: Database, table: str) -> str:
    return quoted(database.schema.row_key(table) or "id")


def reference_form(question: Question, reader: Reader) -> Form:
    """Return the kind of the reference answer by the rules of the judge "facts", such as "number"."""
    if reader.is_refusal(question.answer):
        return "refusal"
    if is_prose(question.answer, question.lang):
        return "prose"
    conclusion = reader.number_or_yes_no(question.answer, question.question)
    return "facts" if conclusion is None else "yes or no" if conclusion.isalpha() else "number"


class QuoteCounts(NamedTuple):
    """The number of evidence quotes that were found in their cells, and the number of quotes that were not checked."""

    found: int
    unchecked: int


def count_quotes(questions: Iterable[Question], databases: DatabasePool) -> QuoteCounts:
    found = unchecked = 0
    for question in questions:
        with databases.of(question.database) as database:
            text = database.dialect.text_literal
            for item in question.evidence:
                contains = f"instr({quoted(item.field)}, {text(item.quote)}) > 0"
                key = _key(database, item.table)
                rows = f"SELECT {key} FROM {quoted(item.table)} WHERE {key} = {item.row_id}"
                answer = database.query(f"{rows} AND {contains}")
                found += answer.count
                unchecked += answer.error is not None and answer.error.kind not in _NO_CELL
    return QuoteCounts(found, unchecked)


def problem_of(checked: Sequence[CheckedQuestion], judge_name: str) -> ConfigError | None:
    """Return an error, with an example, if training on these questions is pointless; else None.

    Training is pointless if the share of gold queries that return rows, or the mean score of the references, is below
    REQUIRED_SHARE.
    """
    with_sql = [c for c in checked if c.needs_rows]
    wrong = [c for c in with_sql if not c.returns_rows]
    if with_sql and (len(with_sql) - len(wrong)) / len(with_sql) < REQUIRED_SHARE:
        first = wrong[0]
        return ConfigError(
            f"{len(wrong)} of {len(with_sql)} gold queries fail or return no row in {first.database}, such as "
            f"{'; '.join(first.question.statements)!r} of question {first.question.id!r}: {first.failure or 'no row'}",
            hint="set database.path=FILE to the database of these questions",
        )
    graded = [(c.earned, c) for c in checked if c.earned is not None]
    mean = fmean(earned for earned, _ in graded) if graded else 1.0
    if mean >= REQUIRED_SHARE:
        return None
    worst = min(graded, key=lambda pair: pair[0])[1]
    return ConfigError(
        f"the reference answers of {len(graded)} questions earn {mean:.2f} of 1.0 from the judge {judge_name}, and no "
        f"answer can earn more; the reference of question {worst.question.id!r} earns {worst.earned:.2f}: "
        f"{worst.reason}",
        hint=worst.hint or "use references whose facts are in the rows of the gold SQL, or another judge.name",
    )


async def _check(question: Question, database: Database, reader: Reader, judge: Judge | None) -> CheckedQuestion:
    if judge is not None and lacks_evidence(question, reader):
        question = question.model_copy(update={"evidence": derive_evidence(question, database)})
    calls = _calls(question.statements, database)
    error = next((call.answer.error for call in calls if call.answer.error), None)
    result = CheckedQuestion(
        question=question,
        database=str(database.source),
        form=reference_form(question, reader),
        returns_rows=error is None and any(call.answer.count for call in calls),
        failure=error.message if error else None,
        failure_kind=error.kind if error else "",
    )
    return result if judge is None else await _graded(result, calls, database, judge, reader)


async def _graded(
    result: CheckedQuestion, calls: tuple[QueryCall, ...], database: Database, judge: Judge, reader: Reader
) -> CheckedQuestion:
    question = result.question
    quotes = tuple(item.quote for item in question.evidence)
    # The judge compares an answer to a prose reference with the evidence only.
    answer = "\n".join(quotes) if result.form == "prose" and quotes else question.full_answer
    read: tuple[Evidence, ...] | None = question.evidence or None
    if not calls:
        calls = (_as_if_read((question.answer, *quotes)),)
    elif read is not None:
        conclusion = reader.number_or_yes_no(question.answer, question.question)
        read = evidence_read(database, calls, question.evidence, conclusion, question.statements)
    case = JudgeCase(question=question, answer=answer, calls=calls, evidence_read=read)
    hint = None
    try:
        verdict = await judge.grade(case)
        earned, reason = verdict.score, verdict.reason
        returned = [row for call in calls for row in call.answer.records] if result.returns_rows else []
        if earned < 1.0 and len(returned) == 1 == len(returned[0]):
            reason = f"the gold SQL returns {returned[0][0]!r}, the reference says {question.answer!r}"
    except JudgeError as error:
        earned, reason, hint = 0.0, error.message, error.hint
    return replace(result, earned=earned, reason=reason, hint=hint)


def _as_if_read(cells: tuple[str, ...]) -> QueryCall:
    """Return a query call whose result is one row of `cells`, in place of missing gold SQL."""
    columns = tuple(f"c{number}" for number in range(len(cells)))
    answer = QueryAnswer(status="ok", columns=columns, records=(cells,), count=1, from_tables=True)
    return QueryCall(sql="", answer=answer, seconds=0.0)
