"""Let a teacher model propose labels and wordings for a guessed description, and use the usable ones."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sql_agent.questions.question_columns import language
from sql_agent.questions.teacher import Entry, digest_of
from sql_agent.reward.judges.client import JudgeClient
from sql_agent.reward.judges.prompt_parts import render
from sql_agent.schemas import Lang, Record, Usage
from sql_agent.system.files import prompt_file
from sql_agent.tasks.described.description import Column, Description, Kind, Wordings
from sql_agent.tasks.described.table_rows import DatabaseRows

LEAST_TOKENS = 4000  # minimum token limit for a reply about `_MOST_COLUMNS` columns
_MOST_COLUMNS = 10  # maximum for one request; a wider table has several requests
_MOST_VALUES, _MOST_CHARS = 5, 40  # maximum number of values of a column that the teacher sees, and their length
_AGAIN = "That is not a JSON object of the form that was asked for. Reply with it and nothing else."
# The kinds of columns for which a field of ColumnProposal is used, and the slots of each of its wordings.
_KINDS: Mapping[str, tuple[tuple[Kind, ...], tuple[str, ...]]] = {
    "ask": (("list", "text", "number", "date", "category", "flag"), ("name",)),
    "find": (("list", "category"), ("value",)),
    "confirm": (("list", "category"), ("name", "value")),
    "plural": (("list", "category"), ()),
    "unit": (("number",), ()),
}
_SLOT = re.compile(r"\{([^{}]*)\}")


# The JSON schemas of the next two classes, docstrings included, are part of the requests.
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
    template = prompt_file(__file__, f"propose.{description.lang}.txt")
    for name, table in description.tables.items():
        columns = [column for column, of in table.columns.items() if of.kind != "id"]
        for start in range(0, len(columns), _MOST_COLUMNS):
            shown = tuple(columns[start : start + _MOST_COLUMNS])
            lines = (_line(column, table.columns[column], database.tables[name].cells(column)) for column in shown)
            values = {
                "table": json.dumps({"table": name, "label": table.label, "plural": table.plural}, ensure_ascii=False),
                "columns": "\n".join(lines),
            }
            prompt = render(template, values)
            yield TablePart(f"{name} {start // _MOST_COLUMNS + 1}", name, shown, prompt)


async def propose(part: TablePart, client: JudgeClient) -> tuple[Proposed, Usage]:
    """Ask the teacher for labels and wordings; return the log entry and the cost. Raises JudgeError."""
    proposal, usage = await client.ask(part.prompt, TableProposal, repair=_AGAIN)
    return Proposed(id=part.id, digest=part.digest(client), proposal=proposal), usage


def with_proposals(
    description: Description, proposals: Sequence[tuple[TablePart, TableProposal]]
) -> tuple[Description, Counter[str], Counter[str]]:
    """Return the description with the usable proposals, and counts: used texts by kind, rejected texts by reason."""
    used: Counter[str] = Counter()
    dropped: Counter[str] = Counter()

    def usable(texts: Iterable[str], slots: Sequence[str] = ()) -> Wordings:
        good: dict[str, None] = {}
        for text in (" ".join(each.split()) for each in texts):
            problem = _problem(text, slots, description.lang) or ("twice" if text in good else "")
            if problem:
                dropped[problem] += 1
            else:
                good[text] = None
        used["wordings" if slots else "labels"] += len(good)
        return tuple(good)

    def with_proposal(column: Column, proposal: ColumnProposal) -> Column:
        """Return the column with the proposed texts. Proposed wordings replace the guessed ones."""
        found: dict[str, Wordings | str] = dict(zip(["label"], usable([proposal.label]), strict=False))
        for key, (kinds, slots) in _KINDS.items():
            value = getattr(proposal, key)
            texts = value if slots else [value] if value else []
            if column.kind not in kinds:
                dropped[f"`{key}` of the kind {column.kind}"] += len(texts)
            elif good := usable(texts, slots):
                found[key] = good if slots else good[0]
        return column.model_copy(update=found)

    tables = dict(description.tables)
    for part, proposal in proposals:
        columns = dict(tables[part.table].columns)
        for column in proposal.columns:
            if column.column in part.columns:
                columns[column.column] = with_proposal(columns[column.column], column)
            else:
                dropped["unknown column"] += 1
        words = {key: word for key in ("label", "plural") for word in usable([getattr(proposal, key)])}
        tables[part.table] = tables[part.table].model_copy(update={"columns": columns, **words})
    return description.model_copy(update={"tables": tables}), +used, +dropped


def _problem(text: str, slots: Sequence[str], lang: Lang) -> str:
    """Return why a label, or a wording with `slots`, cannot be used; "" for one that can."""
    asked = _SLOT.sub("", text)
    if not text:
        return "empty"
    if sorted(_SLOT.findall(text)) != sorted(slots) or "{" in asked or "}" in asked:
        return "wrong slots" if slots else "braces in a label"
    is_label_of_a_chinese_column = lang == "zh" and not slots  # such as BMI or pH
    return "wrong language" if language(asked) != lang and not is_label_of_a_chinese_column else ""


def _line(name: str, column: Column, cells: Sequence[object]) -> str:
    """Return a column as the teacher sees it."""
    texts = dict.fromkeys(" ".join(str(cell).split()) for cell in cells if cell is not None)
    shown = [text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…" for text in list(texts)[:_MOST_VALUES]]
    guessed = {"kind": column.kind, "label": column.label, "plural": column.plural, "unit": column.unit}
    return json.dumps({"column": name, **guessed, "values": shown}, ensure_ascii=False)
