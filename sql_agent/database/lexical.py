"""Check the text of a statement before it is parsed: comments, unusual characters and size."""

from __future__ import annotations

import re

from sql_agent.database.dialect import Dialect
from sql_agent.errors import QueryError

MAX_SQL_CHARS = 8_000

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|[\ud800-\udfff]")
_NON_ASCII = re.compile(r"[^\x00-\x7f]")
_FIRST_WORD = re.compile(r"[\s(]*([A-Za-z_]*)")
_ASCII_FORM = {"，": ",", "（": "(", "）": ")", "；": ";", "＝": "=", "“": "'", "”": "'", "‘": "'", "’": "'", "　": " "}


def check_length(sql: str) -> None:
    """Raise QueryError of kind too_long."""
    if len(sql) > MAX_SQL_CHARS:
        message = f"the statement has {len(sql)} characters, at most {MAX_SQL_CHARS} are allowed"
        raise QueryError("too_long", message, hint="write a shorter statement")


def clean(sql: str, dialect: Dialect) -> str:
    """Return the one SELECT statement in `sql` without comments and final semicolons.

    Comments are removed, because parsers disagree about where they end. Raises QueryError of kind empty, too_long,
    syntax, not_select or multiple_statements.
    """
    check_length(sql)
    sql = sql.removeprefix("\ufeff")  # the mark that some programs put before a text
    control = _CONTROL.search(sql)
    if control:
        message = f"the statement contains the character U+{ord(control.group()):04X}"
        raise QueryError("syntax", message, hint="leave this character out")
    if sql.lstrip().startswith("```"):
        raise QueryError("syntax", "the statement is wrapped in ``` marks", hint="send the SQL text alone")
    text, bare = _without_comments(sql, dialect)
    if not bare.strip("; \t\r\n"):
        raise QueryError("empty", "there is no statement", hint="send one SELECT statement")
    _check_first_word(text)
    text, bare = _without_final_semicolons(text, bare)
    if ";" in bare:
        raise QueryError("multiple_statements", "only one statement is allowed", hint="send them one at a time")
    _check_characters(bare)
    dialect.check_text(text, bare)
    return text


def _without_comments(sql: str, dialect: Dialect) -> tuple[str, str]:
    """Return the text without comments, and the same with every quoted part masked (equal lengths)."""
    text: list[str] = []
    bare: list[str] = []
    position = 0
    for match in dialect.parts.finditer(sql):
        between = sql[position : match.start()]
        position = match.end()
        if match["open"]:
            message = f"the quote {match['open']} at character {match.start() + 1} is never closed"
            raise QueryError("syntax", message, hint="inside a text write '' for one quote")
        quoted = match["quoted"]
        text += (between, quoted or " ")
        bare += (between, quoted[0] + "_" * (len(quoted) - 2) + quoted[-1] if quoted else " ")
    text.append(sql[position:])
    bare.append(sql[position:])
    return "".join(text), "".join(bare)


def _without_final_semicolons(text: str, bare: str) -> tuple[str, str]:
    end = len(bare.rstrip("; \t\r\n"))
    return text[:end], bare[:end]


def _check_first_word(text: str) -> None:
    match = _FIRST_WORD.match(text)
    word = match[1].upper() if match else ""
    if word in {"SELECT", "WITH"}:
        return
    shown = word or text.strip()[:20]
    raise QueryError(
        "not_select", f"the statement starts with {shown}", hint="only SELECT, or WITH followed by SELECT, is allowed"
    )


def _check_characters(bare: str) -> None:
    """Refuse full-width punctuation and unusual spaces, because engines read them as parts of names."""
    for match in _NON_ASCII.finditer(bare):
        char = match.group()
        if not char.isalnum():
            plain = _ASCII_FORM.get(char)
            hint = f"write {plain!r} instead" if plain else "outside quotes use plain ASCII characters"
            raise QueryError("syntax", f"the character {char!r} (U+{ord(char):04X}) stands outside quotes", hint=hint)
