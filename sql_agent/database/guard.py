"""Check that a statement is a single SELECT that reads only tables of the schema and calls only allowed functions.

On MySQL and MariaDB, only statements that `check` accepts are run. On SQLite, the authorizer decides what is run, and
`check` provides the error messages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from sql_agent.database.answers import Row
from sql_agent.database.dialect import Dialect
from sql_agent.database.schema import MAX_HINT_CHARS, TRY, Schema
from sql_agent.database.table_access import check_tables, shows_tables
from sql_agent.errors import QueryError

MAX_SQL_CHARS = 8_000
_FIRST_WORDS = {"SELECT", "WITH"}  # not EXPLAIN, which reveals too much; not VALUES, which reads no table
_BYTE_ORDER_MARK = "\ufeff"

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|[\ud800-\udfff]")
_NON_ASCII = re.compile(r"[^\x00-\x7f]")
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
_FIRST_WORD = re.compile(r"[\s(]*([A-Za-z_]*)")
_ASCII_FORM = {"，": ",", "（": "(", "）": ")", "；": ";", "＝": "=", "“": "'", "”": "'", "‘": "'", "’": "'", "　": " "}
# Allowed arguments of exp.Subquery. Others are clauses after the parentheses, as in `(SELECT ...) ORDER BY x`.
_OF_SUBQUERIES = frozenset({"this", "alias", "joins"})
_ASKS_FOR_SCHEMA = re.compile(r"\s*(?:PRAGMA|SHOW|DESC|DESCRIBE)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Checked:
    """A statement that passed the check: its text without comments, and its syntax tree.

    `from_tables` is true if an output column comes from a table of the schema or counts the rows of such a table.
    """

    sql: str
    tree: exp.Query
    from_tables: bool


@dataclass(frozen=True)
class Result:
    """The result of a statement, cut to the limits.

    `tree` and `from_tables` are as in `Checked`, but `tree` is None if sqlglot cannot parse the statement.
    """

    columns: tuple[str, ...]
    records: tuple[Row, ...]
    truncated: bool
    tree: exp.Query | None = None
    from_tables: bool = False


def check(sql: str, schema: Schema, dialect: Dialect) -> Checked:
    """Check the statement `sql` and return it in the form to run. Raises QueryError, whose kind is in `KINDS`."""
    _refuse_listing(sql, schema)
    text = clean(sql, dialect)
    try:
        tree = parse(text, dialect)
        nodes = list(tree.walk())
        _check_nodes(nodes, dialect)
        dialect.check_nodes(text, tree, nodes)
        check_tables(tree, schema, dialect)
        from_tables = shows_tables(tree, schema, dialect)
    except RecursionError:
        raise QueryError("too_complex", "the statement is nested too deeply", hint="simplify the statement") from None
    return Checked(text, tree, from_tables)


def check_start(sql: str, schema: Schema, dialect: Dialect) -> None:
    """Raise QueryError unless the statement begins with SELECT or WITH, possibly after comments and parentheses."""
    _refuse_listing(sql, schema)
    text, _ = _without_comments(sql, dialect)
    if _first_word(text) not in _FIRST_WORDS:
        clean(sql, dialect)  # raises QueryError with the clearest message


def _refuse_listing(sql: str, schema: Schema) -> None:
    """Raise QueryError for statements such as SHOW TABLES or PRAGMA, with a hint that lists tables and columns."""
    if _ASKS_FOR_SCHEMA.match(sql):
        message = f"the statement starts with {sql.split(maxsplit=1)[0].upper()}"
        raise QueryError("not_select", message, hint=schema.listing)


def parse(text: str, dialect: Dialect) -> exp.Query:
    """Return the syntax tree of a text that `clean` returned. Raises QueryError unless the text is one SELECT."""
    try:
        trees = dialect.parse(text)
    except ParseError as error:
        raise _syntax_error(error, text, dialect) from None
    except TokenError:
        raise QueryError("syntax", "the statement cannot be split into words", hint="check the quotes") from None
    tree = trees[0] if len(trees) == 1 else None
    while isinstance(tree, exp.Subquery) and tree.is_wrapper:  # parentheses around the whole statement
        tree = tree.this
    if not isinstance(tree, exp.Select | exp.SetOperation):
        raise _not_select(f"{type(tree).__name__.upper()} is not allowed")
    return tree


def _syntax_error(error: ParseError, text: str, dialect: Dialect) -> QueryError:
    details = error.errors[0] if error.errors else {}
    near = str(details.get("highlight") or "").strip()
    description = str(details.get("description") or "").rstrip(".")
    if not description or "<" in description:  # some messages of sqlglot contain the repr of a Python object
        description = "the statement is incomplete"
    place = f" near {near[:60]!r}" if near else ""
    return QueryError("syntax", f"{description}{place}", hint=dialect.syntax_hint(text))


def _not_select(message: str) -> QueryError:
    return QueryError("not_select", message, hint="only SELECT, or WITH followed by SELECT, is allowed")


def _check_nodes(nodes: Sequence[exp.Expr], dialect: Dialect) -> None:
    for node in nodes:
        if isinstance(node, exp.CTE) and not isinstance(node.this, exp.Query | exp.Values):
            raise _not_select(f"{type(node.this).__name__.upper()} is not allowed")
        if isinstance(node, exp.Into):
            raise _not_select("INTO is not allowed")
        if isinstance(node, exp.Subquery) and any(node.args[key] for key in node.args.keys() - _OF_SUBQUERIES):
            message = "a clause follows a query in parentheses"
            raise QueryError("syntax", message, hint="write ORDER BY, LIMIT and WITH inside the parentheses")
        name = dialect.called(node)
        if name is not None and name not in dialect.functions:
            message = f"the function {name}() is not allowed"
            raise QueryError("forbidden_function", message, hint=dialect.function_hint(name))


def check_length(sql: str) -> None:
    """Raise QueryError if the statement has more than `MAX_SQL_CHARS` characters."""
    if len(sql) > MAX_SQL_CHARS:
        message = f"the statement has {len(sql)} characters, at most {MAX_SQL_CHARS} are allowed"
        raise QueryError("too_long", message, hint="write a shorter statement")


def clean(sql: str, dialect: Dialect) -> str:
    """Return the statement without comments and final semicolons.

    Comments are removed because parsers disagree about where they end. Raises QueryError unless `sql` is a single
    statement that starts with SELECT or WITH.
    """
    check_length(sql)
    control = _CONTROL.search(sql)
    if control:
        message = f"the statement contains the character U+{ord(control.group()):04X}"
        raise QueryError("syntax", message, hint="leave this character out")
    if sql.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith("```"):
        raise QueryError("syntax", "the statement is wrapped in ``` marks", hint="send the SQL text alone")
    text, bare = _without_comments(sql, dialect)
    if not bare.strip("; \t\r\n"):
        raise QueryError("empty", "there is no statement", hint="send one SELECT statement")
    word = _first_word(text)
    if word not in _FIRST_WORDS:
        raise _not_select(f"the statement starts with {word or text.strip()[:20]}")
    end = len(bare.rstrip("; \t\r\n"))
    text, bare = text[:end], bare[:end]
    if ";" in bare:
        raise QueryError("multiple_statements", "only one statement is allowed", hint="send one statement at a time")
    _check_characters(bare)
    dialect.check_text(text, bare)
    return text


def _without_comments(sql: str, dialect: Dialect) -> tuple[str, str]:
    """Return the statement without comments, and the same text with the content of quotes masked."""
    text: list[str] = []
    bare: list[str] = []
    position = 0
    sql = sql.removeprefix(_BYTE_ORDER_MARK)
    for match in dialect.parts.finditer(sql):
        between = sql[position : match.start()]
        position = match.end()
        if match["open"]:
            message = f"the quote {match['open']} at character {match.start() + 1} is never closed"
            raise QueryError("syntax", message, hint=_with_apostrophes(sql, dialect))
        quoted = match["quoted"]
        text += (between, quoted or " ")
        bare += (between, quoted[0] + "_" * (len(quoted) - 2) + quoted[-1] if quoted else " ")
    text.append(sql[position:])
    bare.append(sql[position:])
    return "".join(text), "".join(bare)


def _with_apostrophes(sql: str, dialect: Dialect) -> str:
    """Return a hint for a statement with an open quote: the statement with '' inside words, if it is a query then."""
    remark, doubled = "inside a text write '' for one quote", _APOSTROPHE.sub("''", sql)
    if doubled == sql or len(doubled) > MAX_HINT_CHARS or "\n" in doubled:
        return remark
    try:
        parse(clean(doubled, dialect), dialect)
    except QueryError:
        return remark
    return TRY + doubled


def _first_word(text: str) -> str:
    match = _FIRST_WORD.match(text)
    return match[1].upper() if match else ""


def _check_characters(bare: str) -> None:
    """Raise QueryError for full-width punctuation and unusual spaces, which engines read as parts of names."""
    for match in _NON_ASCII.finditer(bare):
        char = match.group()
        if not char.isalnum():
            plain = _ASCII_FORM.get(char)
            hint = f"write {plain!r} instead" if plain else "outside quotes use plain ASCII characters"
            raise QueryError("syntax", f"the character {char!r} (U+{ord(char):04X}) is outside quotes", hint=hint)
