"""Write the question as the model reads it: with the values of the database that the question names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from sql_agent.database import Database
from sql_agent.schemas import Question
from sql_agent.tasks.described.description import WORDINGS, Description
from sql_agent.tasks.described.words import wordings

_SLOT = re.compile(r"\{[^{}]*\}")


def with_named_values(description: Description) -> Callable[[Question, Database], str]:
    """Return a function that writes a question and, in a second line, the conditions that find the values it names.

    An everyday word of `description.said` counts as the item that the word means. Words with which `description` asks
    for a column name no value.
    """
    plain = "\n".join(_SLOT.sub("\n", text) for text in _texts(description)).casefold()
    said = {other: item for item, others in description.said.items() for other in others if other not in plain}

    def question_text(question: Question, database: Database) -> str:
        asked = question.question
        items = [item for other, item in said.items() if other in asked]
        found = database.named_values("\n".join([asked, *items]))
        shown = [str(value) for value in found if value.operator == "=" or value.value.strip("%") not in plain]
        words = wordings(question.lang)
        return f"{asked}\n{words['values']}{'; '.join(shown) or words['no_values']}"

    return question_text


def _texts(description: Description) -> Iterator[str]:
    for table in description.tables.values():
        yield from (table.label, table.plural, *table.unknown)
        for column in table.columns.values():
            yield from (column.label, column.plural, column.meaning)
            yield from (text for key in WORDINGS for text in getattr(column, key))
            yield from (text for texts in column.then.values() for text in texts)
            yield from (text for part in column.parts.values() for text in part.ask)
