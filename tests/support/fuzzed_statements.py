"""Statements made of pieces of ordinary and of hostile ones, at random."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from tests.database.hostile_mysql import HOSTILE
from tests.database.hostile_statements import REFUSED
from tests.database.ordinary_statements import ORDINARY
from tests.database.verdicts import VERDICTS

_WORDS = re.compile(r"'(?:[^'\\]|\\.|'')*'|\w+|\s+|[^\w\s]", re.DOTALL)
_LONGEST = 2_000
_BREAKING_SHARE = 0.4  # of the statements get pieces put in anywhere, which few survive
_HOSTILE = [sql for group in (*HOSTILE.values(), *REFUSED.values()) for sql in group if len(sql) < _LONGEST]
_ORDINARY = [*ORDINARY, *(sql for sql, _, _ in VERDICTS)]
_SEEDS = [_ORDINARY, _ORDINARY, _HOSTILE]
_PIECES = [
    *("secrets", "password", "secrets_view", "steal()", "mysql.user", "information_schema.tables", "sqlite_master"),
    *("SLEEP(1)", "LOAD_FILE('/etc/passwd')", "load_extension('x')", "@x", "@x :=", "@@datadir", "RAND()", "random()"),
    *(
        "(SELECT password FROM secrets)",
        "UNION SELECT password FROM secrets",
        ", secrets",
        "JOIN secrets",
        "FROM secrets",
    ),
    *("'", '"', "`", "[", "]", "\\", "\\'", "''", "--", "-- ", "#", "/*", "*/", "/*!", "/*!50000", "/*M!", ";", "\n"),
    *(
        "(",
        ")",
        ",",
        ".",
        "*",
        "WITH",
        "AS",
        "SELECT",
        "FROM",
        "WHERE",
        "TABLE",
        "VALUES",
        "INTO",
        "FOR UPDATE",
        "main.",
    ),
    *("INTO OUTFILE 'x'", "DELETE FROM disease", "UPDATE disease SET id = 1", "disease", "drugs_info", "Disease", "id"),
    *(
        "X'",
        "N'",
        "_utf8'",
        "_gbk'",
        "0x",
        "{fn ",
        "}",
        "LATERAL",
        "PROCEDURE ANALYSE()",
        "\u00a0",
        "％",
        "a",
        "1",
        "||",
    ),
]


# A word is replaced by another one of its kind, so that many statements stay ones that an engine can read.
_KINDS = [
    [
        "disease",
        "drugs_info",
        "secrets",
        "secrets_view",
        "a",
        "mysql.user",
        "information_schema.tables",
        "sqlite_master",
    ],
    ["id", "med_name", "form", "overview", "disease_name", "treatment", "password", "rowid", "indication"],
    [
        *("count", "max", "lower", "length", "substr", "replace", "coalesce", "concat", "instr", "hex", "group_concat"),
        *("sleep", "steal", "load_file", "load_extension", "user", "version", "random", "rand", "repeat", "benchmark"),
    ],
    ["AND", "OR", "XOR", "UNION", "EXCEPT", "INTERSECT", "WHERE", "HAVING", "ON"],
    ["=", "<", ">", "<>", "LIKE", "REGEXP", "GLOB", "IN", "IS", "||", "+", "-"],
]


def fuzzed(count: int, seed: int) -> Iterator[str]:
    """Yield `count` statements; the same seed gives the same ones."""
    rng = random.Random(seed)
    for _ in range(count):
        words = _WORDS.findall(rng.choice(rng.choice(_SEEDS)))
        change = _changed if rng.random() < _BREAKING_SHARE else _swapped
        for _ in range(rng.randint(1, 3)):
            words = change(words, rng)
        yield "".join(words)[:_LONGEST]


def _swapped(words: list[str], rng: random.Random) -> list[str]:
    places = [(place, kind) for place, word in enumerate(words) for kind in _KINDS if word in kind]
    if not places:
        return _changed(words, rng)
    place, kind = rng.choice(places)
    return [*words[:place], rng.choice(kind), *words[place + 1 :]]


def _changed(words: list[str], rng: random.Random) -> list[str]:
    start = rng.randrange(len(words) + 1)
    end = min(len(words), start + rng.choice((0, 0, 1, 1, 3)))
    other = _WORDS.findall(rng.choice(rng.choice(_SEEDS)))
    cut = rng.randrange(len(other) + 1)
    new = rng.choice(
        ([], [rng.choice(_PIECES)], [" ", rng.choice(_PIECES), " "], other[cut : cut + rng.randint(1, 12)])
    )
    return [*words[:start], *new, *words[end:]]
