"""Turn a draft into a question: choose words and statements, run the statements, and check the reference answer."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain

from sql_agent.database import Database, Naming
from sql_agent.database.answers import CUT
from sql_agent.database.provenance import judge_case
from sql_agent.errors import JudgeError
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.reward.judges.items import Reader, Words, is_prose
from sql_agent.schemas import Cell, Evidence, QueryAnswer, QueryCall, Question
from sql_agent.tasks.described.catalog import Catalog
from sql_agent.tasks.described.conditions import Condition
from sql_agent.tasks.described.contents import LONGEST_ANSWER, SENTENCE_END
from sql_agent.tasks.described.drafts import Draft
from sql_agent.tasks.described.failed_searches import FailedSearches, Route, finds_nothing
from sql_agent.tasks.described.names import OtherNames
from sql_agent.tasks.described.statement import Comparison, Statement
from sql_agent.tasks.described.words import filled, half

_ASIDE_SHARE = 0.25  # share of the questions of one clause that have a remark before or after them
_MOST_BYTES = 700  # maximum for an answer, about 250 tokens of Chinese: a rollout may write 256
_NAME_SHARE = 0.25  # share of the questions about one row that call the row by another name
_PART_SHARE = 0.4  # share of the questions with another name that search it with LIKE, if LIKE finds the row
_SAID_SHARE = 0.5  # share of the searches for a value that say an everyday word for the value, if there is one
_KNOWN_SHARE = 0.4  # share of the questions with an everyday word whose first statement has the database's word
_SHORTEST_SPAN = 4  # minimum number of characters of a fact whose sentence in a cell is known
_MOST_LISTED = 20  # maximum number of rows of an answer
_BOTH_SHARE = 0.12  # share of the questions about one cell whose statement reads a second column
_SEVERAL_CLAUSES = re.compile(r"[，,]\s*\D")  # a question with several clauses gets no remark
# A repeated word: a value ends with the next word of the sentence.
_STUTTER = re.compile(r"([\u3400-\u9fff]{2,4})\1|\b([a-z]{4,}) \2\b")


class QuestionMaker:
    """Turns drafts into questions, and refuses drafts whose statement, evidence or reference is wrong.

    Without `names`, a question names rows and values as the database does, and has no statement that fails.
    """

    def __init__(
        self,
        catalog: Catalog,
        database: Database,
        words: Words,
        namings: Mapping[str, Naming],
        *,
        chosen: random.Random,
        names: OtherNames | None,
    ) -> None:
        self._catalog, self._database, self._namings = catalog, database, namings
        self._judge = FactsJudge({catalog.description.lang: words})
        self._reader = Reader(words)
        self._chosen, self._names, self._plain = chosen, names, names is None
        self._query = lru_cache(maxsize=64)(database.query)  # cached, because a first statement runs twice
        self._searches = FailedSearches(catalog, self._query, chosen)
        self._texts: set[str] = set()
        self.refused: Counter[str] = Counter()

    def question(self, draft: Draft, number: str, *, held_out: bool) -> Question | None:
        """Return the question of a draft, or None if a check fails; `refused` counts the reasons."""
        complete = self._with_rows(draft) if draft.from_rows else draft
        if complete is None or sum(len(fact.encode()) for fact in complete.facts) > _MOST_BYTES:
            return None
        draft = complete
        said, route = self._said(draft) if not self._plain else ({}, None)
        text = self._with_aside(draft.wording.say(self._chosen, held_out=held_out, **said), draft, held_out=held_out)
        if text in self._texts or _STUTTER.search(text) or self._names_a_row(draft) or self._misleads(draft):
            return None
        if not said and not self._plain:
            route = self._searches.around(draft, text)
            if route is None and self._chosen.random() < _BOTH_SHARE:
                draft = self._searches.two_columns(draft)
        route = route or self._searches.direct(draft)
        if draft.task_type == "unanswerable" and draft.subject is not None and not self._plain:
            route = self._searches.looking_again(route)
            if route is None:
                return None
        question = self._checked(draft, route, text, number)
        if question is not None:
            self._texts.add(text)
        return question

    def _with_aside(self, text: str, draft: Draft, *, held_out: bool) -> str:
        """Return the question `text` or, for a share of the drafts, a remark and the question."""
        if self._plain or _SEVERAL_CLAUSES.search(text) or self._chosen.random() >= _ASIDE_SHARE:
            return text
        if found := self._asides_on_items(text, draft, held_out=held_out):
            return self._chosen.choice(found)
        ways = self._catalog.words["asides"]
        if draft.facts not in ((self._catalog.words["yes"],), (self._catalog.words["no"],)):
            ways = [*self._catalog.words["asides_in_doubt"], *ways]
        return filled(self._chosen.choice(half(ways, held_out=held_out)), question=text)

    def _asides_on_items(self, text: str, draft: Draft, *, held_out: bool) -> list[str]:
        """Return the question `text` with a remark on an item, for each item that is a name or has an everyday word."""
        if (row := draft.subject) is None:
            return []
        read = {output.column for output in draft.statement.outputs}
        everyday, names = self._catalog.description.said, self._catalog.names
        found = []
        for name, column in self._catalog.table(row.table).columns.items():
            items = self._catalog.words_of(row, name) if column.asides and name not in read else []
            for item in items:
                if item not in text and (item in everyday or item in names):
                    said = self._chosen.choice([item, *everyday.get(item, ())])
                    way = self._chosen.choice(half(column.asides, held_out=held_out))
                    found.append(filled(way, question=text, value=said))
        return found

    def _names_a_row(self, draft: Draft) -> bool:
        """Return whether a question about an unknown name uses the alias of a row, such as 胆石症 for 胆结石."""
        if draft.task_type != "unanswerable" or draft.subject is not None or self._names is None:
            return False
        return any(self._names.knows(str(test.value)) for test in draft.statements[0].where)

    def _misleads(self, draft: Draft) -> bool:
        """Return whether people who search a word of the draft mean other rows than those that contain it."""
        return self._names is not None and any(
            self._names.is_misleading(draft.statement.table, condition.column, condition.value)
            for condition in draft.conditions
            if condition.has_word
        )

    def _with_rows(self, draft: Draft) -> Draft | None:
        """Return the draft with its statement's result as the reference, or None if the result is no clear answer."""
        statement = draft.statement
        answer = self._query(statement.sql(self._catalog.database))
        rows = answer.records
        if answer.truncated or not 0 < len(rows) <= _MOST_LISTED:
            return None
        if None in chain(*rows) or (0,) in rows:  # a wrong statement counts 0, too
            return None
        texts = [[str(cell) for cell in row] for row in rows]
        if not all(map(self._catalog.fits, chain(*texts))) or self._has_ties(statement):
            return None
        if len(texts) == 1 or len(texts[0]) == 1:
            facts = tuple(dict.fromkeys(chain(*texts)))
        elif len({name for name, *_ in texts}) == len(texts):
            facts = tuple(self._catalog.fact(name, cells) for name, *cells in texts)
        else:
            return None
        return replace(draft, expected=rows, facts=facts)

    def _has_ties(self, statement: Statement) -> bool:
        """Return whether rows with equal sort keys make the result ambiguous."""
        if statement.order_by is None:
            return False
        limit = None if statement.limit is None else statement.limit + 1
        longer = replace(statement, outputs=(*statement.outputs, statement.order_by), limit=limit)
        answer = self._query(longer.sql(self._catalog.database))
        keys = [row[-1] for row in answer.records]
        return answer.truncated or len(set(keys)) < len(keys)

    def _said(self, draft: Draft) -> tuple[dict[str, str], Route | None]:
        """Return slots with words that are not the database's, and a route whose first statement searches these words.

        Return {} if the question says the database's words. The route None means: choose a route in the usual way.
        """
        if draft.subject is not None and self._chosen.random() < _NAME_SHARE:
            return self._named_otherwise(draft)
        words = self._everyday_words(draft.conditions)
        if words is None or self._chosen.random() >= _SAID_SHARE:
            return {}, None
        said = dict(zip(("value", "value2"), words, strict=False))
        tests = {c.tests[0]: replace(c.tests[0], value=w) for c, w in zip(draft.conditions, words, strict=True)}
        where = tuple(tests.get(test, test) for test in draft.statement.where)
        first = replace(draft.statement, where=where).sql(self._catalog.database)
        if self._chosen.random() < _KNOWN_SHARE or not finds_nothing(self._query(first)):
            return said, None
        direct = self._searches.direct(draft)
        return said, replace(direct, statements=(first, *direct.statements))

    def _named_otherwise(self, draft: Draft) -> tuple[dict[str, str], Route | None]:
        """Return an alias as the slot `name`, and the route whose first statement searches the alias; or ({}, None)."""
        row, first = draft.subject, draft.statements[0]
        name = self._names.of(row, self._chosen) if row and self._names else None
        if row is None or name is None or len(first.where) != 1 or first.joins:
            return {}, None
        part = replace(first, where=(Comparison(row.name_column, "LIKE", name),))
        if self._chosen.random() < _PART_SHARE and self._catalog.matching(row.table, *part.where) == [row]:
            return {"name": name}, self._searches.direct(replace(draft, statements=(part, *draft.statements[1:])))
        wrong = replace(first, where=(Comparison(row.name_column, "=", name),))
        route = self._searches.after(draft, wrong, row.name)
        return ({"name": name}, route) if route is not None else ({}, None)

    def _everyday_words(self, conditions: Sequence[Condition]) -> list[str] | None:
        """Return for each condition an everyday word or an alias of its value that no cell contains.

        Return None if a condition has neither or is not on a list.
        """
        found = []
        for condition in conditions:
            aliases = self._names.aliases_of(condition.value) if self._names else []
            said = (*self._catalog.description.said.get(condition.value, ()), *aliases)
            words = [word for word in said if not self._catalog.is_known(word)]
            if not words or condition.phrase != "list":
                return None
            found.append(self._chosen.choice(words))
        return found or None

    def _checked(self, draft: Draft, route: Route, text: str, number: str) -> Question | None:
        question = Question(
            id=number,
            question=text,
            answer=self._catalog.words["ends"].join(draft.facts),
            lang=self._catalog.description.lang,
            sql="; ".join(route.statements),
            evidence=tuple(dict.fromkeys(self._quoted(item, draft.facts) for item in draft.evidence)),
            task_type=draft.task_type,
            enough=draft.enough,
        )
        found = [self._query(sql) for sql in route.statements]
        if problem := (
            self._problem_of_size(route.statements, found)
            or _problem_of_rows(found, route.expected, ordered=draft.statement.order_by is not None)
            or self._problem_of_reference(question, found)
        ):
            self.refused[problem] += 1
            return None
        return question

    def _quoted(self, item: Evidence, facts: Sequence[str]) -> Evidence:
        """Return the evidence `item`. Its quote of a long cell is only the sentences with `facts`, as a run cuts cells.

        If a fact has no known place in the cell, such as yes or an age of two digits, the quote stays the whole cell.
        """
        if len(item.quote) <= LONGEST_ANSWER or any(len(fact) < _SHORTEST_SPAN for fact in facts):
            return item
        told = [fact.partition(self._catalog.words["colon"])[2] or fact for fact in facts]
        parts = [part for fact in told for part in fact.split(self._catalog.words["comma"])]
        found = [re.search(rf"(?<!\w){re.escape(part)}(?!\w)", item.quote) for part in parts]
        places = [place for match in found if match is not None for place in match.span()]
        if not places:
            return item
        ends = [0, *(stop.end() for stop in SENTENCE_END.finditer(item.quote)), len(item.quote)]
        first = max(end for end in ends if end <= min(places))
        last = min(end for end in ends if end >= max(places))
        return item.model_copy(update={"quote": item.quote[first:last].strip()})

    def _problem_of_size(self, statements: Sequence[str], found: Sequence[QueryAnswer]) -> str | None:
        """Return why a question is refused if a statement's result in `found` lacks rows, else None.

        The cells of a result with one row may be cut.
        """
        for sql, answer in zip(statements, found, strict=True):
            if answer.truncated and self._query(f"SELECT COUNT(*) FROM ({sql}) AS all_rows").records != ((1,),):
                return "the result is too large"
        return None

    def _problem_of_reference(self, question: Question, found: Sequence[QueryAnswer]) -> str | None:
        if is_prose(question.answer, question.lang) and question.task_type != "unanswerable":
            return "the answer is prose"
        calls = [QueryCall(sql=sql, answer=a, seconds=0.0) for sql, a in zip(question.statements, found, strict=True)]
        case = judge_case(question, question.full_answer, calls, self._database, self._namings, self._reader)
        if case.evidence_read is not None and len(case.evidence_read) < len(question.evidence):
            return "the statement does not read the evidence"
        try:
            earned = asyncio.run(self._judge.grade(case)).score
        except JudgeError:
            return "the reference cannot be graded"
        return None if earned == 1.0 else "the reference is graded below 1"


def _problem_of_rows(
    found: Sequence[QueryAnswer], expected: Sequence[tuple[Cell, ...]], *, ordered: bool
) -> str | None:
    for answer in found:
        if answer.error is not None:
            return f"the statement failed ({answer.error.kind})"
    texts = [[tuple(map(str, row)) for row in rows] for rows in (found[-1].records, expected)]
    if found[-1].truncated and len(expected) == 1:
        are_same = all(map(_begins, *chain(*texts)))
    else:
        are_same = texts[0] == texts[1] if ordered else Counter(texts[0]) == Counter(texts[1])
    return None if are_same else "other rows than expected"


def _begins(shown: str, cell: str) -> bool:
    """Return whether `shown` is `cell`, or is the beginning of `cell` and ends with CUT."""
    return cell.startswith(shown.removesuffix(CUT)) if shown.endswith(CUT) else shown == cell
