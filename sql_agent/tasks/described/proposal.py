"""Have a teacher model propose labels and wordings for a guessed description, and use those that fit the columns."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from importlib.resources import files
from typing import NamedTuple

from sql_agent.questions.question_columns import language
from sql_agent.questions.teacher import Entry, digest_of
from sql_agent.reward.judges.client import JudgeClient
from sql_agent.reward.judges.prompt_parts import render
from sql_agent.schemas import Lang, Record, Usage
from sql_agent.tasks.described.description import Column, Description, Kind, Table, Wordings
from sql_agent.tasks.described.table_rows import DatabaseRows

LEAST_TOKENS = 4000  # of a reply about a table of the most columns
_MOST_COLUMNS = 10  # of one request; a wider table has several
_MOST_VALUES, _MOST_CHARS = 5, 40  # of a column that the teacher sees, and of each of them
_AGAIN = "That is not a JSON object of the form that was asked for. Reply with it and nothing else."
# The kinds of columns that a word or a list of wordings is for, and the slots of such wordings.
_KINDS: Mapping[str, tuple[tuple[Kind, ...], tuple[str, ...]]] = {
    "ask": (("list", "text", "number", "date", "category", "flag"), ("name",)),
    "find": (("list", "category"), ("value",)),
    "confirm": (("list", "category"), ("name", "value")),
    "plural": (("list", "category"), ()),
    "unit": (("number",), ()),
}
_SLOT = re.compile(r"\{([^{}]*)\}")


# The JSON schemas of these two, docstrings included, are part of the requests.
class ColumnProposal(Record):
    """A column."""

    column: str
    label: str
    plural: str
    unit: str
    ask: tuple[str, ...]
    find: tuple[str, ...]
    confirm: tuple[str, ...]


class TableProposal(Record):
    """A table and its columns."""

    label: str
    plural: str
    columns: tuple[ColumnProposal, ...]


class Proposed(Entry):
    """A log entry: the reply about a part of a table."""

    proposal: TableProposal


class TablePart(NamedTuple):
    """Columns of a table that one request is about, and the request."""

    id: str
    table: str
    columns: tuple[str, ...]
    prompt: str

    def digest(self, client: JudgeClient) -> str:
        return digest_of(client.model, self.prompt)


def parts_of(description: Description, database: DatabaseRows) -> Iterator[TablePart]:
    """Yield the parts of all tables that have columns to ask about."""
    template = files("sql_agent.tasks.described").joinpath("prompts", f"propose.{description.lang}.txt")
    for name, table in description.tables.items():
        columns = [column for column, of in table.columns.items() if of.kind != "id"]
        for start in range(0, len(columns), _MOST_COLUMNS):
            shown = tuple(columns[start : start + _MOST_COLUMNS])
            lines = (_line(column, table.columns[column], database.tables[name].cells(column)) for column in shown)
            values = {
                "table": json.dumps({"table": name, "label": table.label, "plural": table.plural}, ensure_ascii=False),
                "columns": "\n".join(lines),
            }
            prompt = render(template.read_text(encoding="utf-8"), values)
            yield TablePart(f"{name} {start // _MOST_COLUMNS + 1}", name, shown, prompt)


async def propose(part: TablePart, client: JudgeClient) -> tuple[Proposed, Usage]:
    """Ask the teacher for labels and wordings; return the log entry and the cost. Raises JudgeError."""
    proposal, usage = await client.ask(part.prompt, TableProposal, repair=_AGAIN)
    return Proposed(id=part.id, digest=part.digest(client), proposal=proposal), usage


def with_proposals(
    description: Description, proposals: Sequence[tuple[TablePart, TableProposal]]
) -> tuple[Description, Counter[str], Counter[str]]:
    """Return the description with the usable proposals, how many are used by kind, and how many not by reason."""
    merging = _Merging(description.lang, Counter(), Counter())
    tables = dict(description.tables)
    for part, proposal in proposals:
        tables[part.table] = merging.table(tables[part.table], part.columns, proposal)
    return description.model_copy(update={"tables": tables}), merging.used, merging.dropped


class _Merging(NamedTuple):
    lang: Lang
    used: Counter[str]
    dropped: Counter[str]

    def table(self, table: Table, shown: Sequence[str], proposal: TableProposal) -> Table:
        columns = dict(table.columns)
        for column in proposal.columns:
            if column.column in shown:
                columns[column.column] = self._column(columns[column.column], column)
            else:
                self.dropped["unknown column"] += 1
        words = self._words({"label": proposal.label, "plural": proposal.plural})
        return table.model_copy(update={"columns": columns, **words})

    def _column(self, column: Column, proposal: ColumnProposal) -> Column:
        """Return the column with what is proposed. Proposed ways to ask replace the plain ones, whose label is old."""
        words = {"label": proposal.label}
        lists = {}
        for key, (kinds, slots) in _KINDS.items():
            value = getattr(proposal, key)
            if column.kind in kinds and isinstance(value, tuple):
                lists[key] = self._wordings(value, slots)
            elif column.kind in kinds and value:
                words[key] = value
            elif value:
                self.dropped[f"`{key}` of the kind {column.kind}"] += 1 if isinstance(value, str) else len(value)
        kept = {key: ways for key, ways in lists.items() if ways}
        return column.model_copy(update=self._words(words) | kept)

    def _words(self, words: Mapping[str, str]) -> dict[str, str]:
        good = {}
        for key, word in words.items():
            text = " ".join(word.split())
            problem = "empty" if not text else "braces in a label" if _SLOT.search(text) else self._foreign(text)
            if problem:
                self.dropped[problem] += 1
            else:
                good[key] = text
        self.used["labels"] += len(good)
        return good

    def _wordings(self, texts: Sequence[str], slots: Sequence[str]) -> Wordings:
        good: dict[str, None] = {}
        for text in (" ".join(each.split()) for each in texts):
            asked = reduce(lambda left, slot: left.replace(f"{{{slot}}}", ""), slots, text)
            if not text:
                problem = "empty"
            elif sorted(_SLOT.findall(text)) != sorted(slots) or "{" in asked or "}" in asked:
                problem = "wrong slots"
            else:
                problem = "wrong language" if language(asked) != self.lang else "twice" if text in good else ""
            if problem:
                self.dropped[problem] += 1
            else:
                good[text] = None
        self.used["wordings"] += len(good)
        return tuple(good)

    def _foreign(self, label: str) -> str:
        """Return the problem of an English label in Chinese; a Chinese label may be BMI or pH."""
        return "wrong language" if self.lang == "en" and language(label) != "en" else ""


def _line(name: str, column: Column, cells: Sequence[object]) -> str:
    """Return a column as the teacher sees it."""
    texts = dict.fromkeys(" ".join(str(cell).split()) for cell in cells if cell is not None)
    shown = [text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…" for text in list(texts)[:_MOST_VALUES]]
    guessed = {"kind": column.kind, "label": column.label, "plural": column.plural, "unit": column.unit}
    return json.dumps({"column": name, **guessed, "values": shown}, ensure_ascii=False)
