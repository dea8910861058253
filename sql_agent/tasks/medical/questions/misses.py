"""Statements that find nothing at first, in the ways in which searches fail, before those that answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from sql_agent.database.cell_texts import MAX_ROWS
from sql_agent.database.conditions import longest_part
from sql_agent.tasks.medical.banks import spoken
from sql_agent.tasks.medical.questions.catalog import Entity
from sql_agent.tasks.medical.questions.draft import Condition, Corpus, Draft, name_is, quoted
from sql_agent.tasks.medical.questions.naming import Namer
from sql_agent.tasks.medical.tables import NAME_COLUMNS

# Of the questions that name their row as the database does: how many look in the wrong place first.
MISS_SHARE = 0.25
# Of the questions about a column that is taken for another one: how many read both in one statement.
BOTH_SHARE = 0.25
# More than this in one result is too much to read.
MAX_READ = 600
# Of the searches for a word: how many ask for it in everyday words, where there are some.
SPOKEN_SHARE = 0.6
# Of those: how many look for what the database has at once.
KNOWN_SHARE = 0.3
# The columns that are taken for each other; one that is empty in the row leads to the right one by its hint.
CONFUSED_COLUMNS = (
    ("adverse_reactions", "precautions", "contraindications"),
    ("storage", "period", "pack", "description"),
    ("indication", "description", "mechanism_action", "cate_name"),
    ("drug_interactions", "precautions", "contraindications"),
    ("form", "pack", "description"),
    ("component", "description", "cate_name"),
    ("dosage", "precautions", "form"),
    ("status", "approve_code", "med_approval"),
    ("cause", "epidemiology", "overview"),
    ("examination", "diagnosis", "differ_diag"),
    ("complication", "prognosis", "clinical_manif"),
    ("treatment", "prevention", "prognosis"),
    ("clinical_manif", "diagnosis", "overview"),
)  # fmt: skip
# What a column of one table is taken for in the other one; any other column for the first of these.
_ELSEWHERE = {
    "drugs_info": {"indication": "treatment", "adverse_reactions": "clinical_manif", "description": "overview"},
    "disease": {"treatment": "indication", "clinical_manif": "adverse_reactions", "overview": "description"},
}
# The types that are answered from one column of one row.
ONE_COLUMN_TYPES = frozenset({"drug_field", "disease_field", "part_of_field", "yes_no"})
_MOST_AROUND = 4
# What a Chinese search takes along from behind its word ends here.
_OF = "的"
_END = re.compile(r"[\s，。？！、：；“”,.?!:;\"'’…-]")


class Misses:
    """Chooses what is looked for in vain first. Each choice leads on: its hint names what the next statement uses."""

    def __init__(self, source: Corpus, namer: Namer) -> None:
        self._catalog = source.catalog
        self._banks = source.natural
        self._rng = source.rng
        self._namer = namer
        self._looked_at: dict[tuple[str, str], list[str]] = {}

    def said(self, condition: Condition) -> tuple[str, ...]:
        """Return how a question says the words of a condition: as they stand, or all in words that no row holds.

        A part of a name is said as it stands.
        """
        if condition.column in NAME_COLUMNS.values():
            return condition.keywords
        others = [
            [word for word in spoken(self._banks, keyword)[1:] if self._is_nowhere(condition, word)]
            for keyword in condition.keywords
        ]
        if all(others) and self._rng.random() < SPOKEN_SHARE:
            return tuple(self._rng.choice(words) for words in others)
        return condition.keywords

    def _is_nowhere(self, condition: Condition, word: str) -> bool:
        """Return whether no row holds `word`, and it names none, which would be one more that the question is about."""
        catalog = self._catalog
        named = any(next(catalog.names_in(table, word), None) for table in catalog.rows)
        return not named and not catalog.rows_with(condition.table, condition.column, word)

    def before(self, draft: Draft, sql: str, text: str, said: Mapping[Condition, tuple[str, ...]]) -> str:
        """Return `sql` after the statements that find nothing: for words as they are `said`, or in the wrong place."""
        if any(said[condition] != condition.keywords for condition in said):
            first = sql.partition("; ")[0]
            for condition, words in said.items():
                for keyword, word in zip(condition.keywords, words, strict=True):
                    first = first.replace(quoted(f"%{keyword}%"), quoted(f"%{word}%"))
            # Without a row that lacks the everyday word there is nothing to miss.
            misses = all(condition.holds for condition in said) and self._rng.random() >= KNOWN_SHARE
            return f"{first}; {sql}" if misses else sql
        if draft.conditions:
            return self._glued(draft, sql, text)
        subject = draft.subject
        if draft.task_type == "unanswerable" and subject is None:
            # What is searched for by a part already is not searched for again: models repeat what they see repeated.
            return sql if ";" in sql else f"{sql}; {_by_part(draft, sql)}"
        if subject and self._rng.random() < BOTH_SHARE:
            sql = self._both_columns(draft, subject, sql)
        if subject is None or not sql.endswith(name_is(subject)) or ";" in sql or self._rng.random() >= MISS_SHARE:
            return sql
        ways: list[Callable[[Draft, Entity, str, str], str | None]] = [
            self._wrong_column,
            self._wrong_table,
            self._too_much_text,
        ]
        self._rng.shuffle(ways)
        first = next((found for way in ways if (found := way(draft, subject, sql, text))), "")
        return f"{first}; {sql}" if first else sql

    def _glued(self, draft: Draft, sql: str, text: str) -> str:
        """Return `sql` after a search for a keyword with the words beside it, whose hint says the keyword again."""
        if ";" in sql or self._rng.random() >= MISS_SHARE:
            return sql
        for condition in draft.conditions:
            start = text.find(condition.keyword)
            end = start + len(condition.keyword)
            after, of, _ = _near(text[end:]).partition(_OF) if start >= 0 else ("", "", "")
            glued = condition.keyword + after + of
            if condition.holds and self._hint_has_part(condition, glued):
                wrong = sql.replace(quoted(f"%{condition.keyword}%"), quoted(f"%{glued}%"))
                return f"{wrong}; {sql}"
        return sql

    def _hint_has_part(self, condition: Condition, glued: str) -> bool:
        """Return whether a search for `glued` finds nothing anywhere, and its hint names the keyword as the part."""
        if condition.other or len(condition.keyword) == len(glued) or 2 * len(condition.keyword) < len(glued):
            return False
        catalog = self._catalog
        if any(catalog.rows_with(table, column, glued) for table in catalog.rows for column in catalog.columns[table]):
            return False
        return longest_part(glued, self._cells(condition.table, condition.column)) == condition.keyword

    def _cells(self, table: str, column: str) -> list[str]:
        """Return the cells of a column that a hint looks at."""
        if (table, column) not in self._looked_at:
            filled = (cell for row in self._catalog.rows[table] if (cell := row.values.get(column)))
            self._looked_at[table, column] = list(islice(filled, MAX_ROWS))
        return self._looked_at[table, column]

    def _both_columns(self, draft: Draft, subject: Entity, sql: str) -> str:
        """Return `sql` as it reads a column that is taken for the right one beside it, where both say something."""
        if draft.column is None or draft.task_type not in ONE_COLUMN_TYPES:
            return sql
        table, column = draft.column
        right = subject.values.get(column) or ""
        others = [
            other
            for other in _confused_with(column, self._catalog.columns[table])
            if (text := subject.values.get(other)) and len(right) + len(text) <= MAX_READ
        ]
        if not others:
            return sql
        both = [column, self._rng.choice(others)]
        self._rng.shuffle(both)
        return sql.replace(f"SELECT {column} FROM {table} ", f"SELECT {', '.join(both)} FROM {table} ")

    def _wrong_column(self, draft: Draft, subject: Entity, sql: str, text: str) -> str | None:
        """Return a column that is taken for the right one and is empty in this row."""
        if draft.column is None or draft.task_type == "unanswerable":
            return None
        table, column = draft.column
        wrong = [
            other for other in _confused_with(column, self._catalog.columns[table]) if not subject.values.get(other)
        ]
        one_column = f"SELECT {column} FROM "
        if not wrong or one_column not in sql:
            return None
        return sql.replace(one_column, f"SELECT {self._rng.choice(wrong)} FROM ")

    def _wrong_table(self, draft: Draft, subject: Entity, sql: str, text: str) -> str | None:
        """Return the other table, which has no row of this name."""
        (other,) = set(NAME_COLUMNS) - {subject.table}
        taken_for = _ELSEWHERE[subject.table]
        column = taken_for.get(draft.column[1], next(iter(taken_for.values()))) if draft.column else None
        if column not in self._catalog.columns[other] or self._catalog.rows_with(
            other, NAME_COLUMNS[other], subject.name
        ):
            return None
        return f"SELECT {column} FROM {other} WHERE {NAME_COLUMNS[other]} = {quoted(subject.name)}"

    def _too_much_text(self, draft: Draft, subject: Entity, sql: str, text: str) -> str | None:
        """Return words of the question that stand beside the name, taken for a part of it."""
        start = text.find(subject.name)
        if start < 0:
            return None
        end = start + len(subject.name)
        before, after = _near(text[:start][::-1])[::-1], _near(text[end:])
        cuts = [cut for cut in (before + subject.name, subject.name + after) if self._namer.leads_to(subject, cut)]
        wrong = self._rng.choice(cuts) if cuts else None
        return sql.replace(quoted(subject.name), quoted(wrong)) if wrong else None


def _confused_with(column: str, columns: Sequence[str]) -> list[str]:
    """Return those of `columns` that are taken for `column`."""
    found = {other for group in CONFUSED_COLUMNS if column in group for other in group if other in columns}
    return sorted(found - {column})


def _by_part(draft: Draft, sql: str) -> str:
    """Return `sql` with the name as a part: who gives up after one statement misses rows that the next would find."""
    name = draft.slots["name"]
    return sql.replace(f"= {quoted(name)}", f"LIKE {quoted(f'%{name}%')}")


def _near(text: str) -> str:
    """Return the next few characters up to a mark; in English one word."""
    if text[:1] == " ":
        return " " + _END.split(text[1:], maxsplit=1)[0]
    return _END.split(text, maxsplit=1)[0][:_MOST_AROUND]
