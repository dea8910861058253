"""The two medical tables: columns and their values, required columns, CREATE TABLE statements, and aliases of rows."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any, get_args
from weakref import WeakKeyDictionary

from sql_agent.database import Database
from sql_agent.database.answers import Row
from sql_agent.database.schema import Naming, RequiredSchema, quoted
from sql_agent.schemas import Lang

_MAX_CHARS = 60  # maximum for an alias
_MOST_VALUES, _MAX_VALUE_CHARS = 12, 30  # maximum numbers of values of a column, and of characters of a value
_CELLS_PER_VALUE = 5  # minimum in the mean: in a small table every column has few values

# "别名：甲；乙；性状：…": a label, then names up to the next label or sentence.
_LABELLED = re.compile(
    r"(?:别名|别称|又名|又称|俗称|亦称|也称|简称|商品名|通用名称?|英文名称?)\s*[：:](?P<names>.*?)"
    r"(?=[；;][^；;：:]{1,10}[：:]|[。\n]|$)"
)
_IN_PROSE = re.compile(r"(?:又名|又称|俗称|亦称|也称|别名|商品名)为?(?P<names>[^：:，。；,;()（）\n]+)")
# Only early in a text: later ones name other things, as in "the lower jaw is also called mandible".
_IN_ENGLISH = re.compile(
    r"\A.{0,200}?\balso (?:called|known as)\s+(?P<names>[^.;()\n]+?)"
    r"(?=[.;()\n]|, (?:is|are|was|were|has|have|which|that|who|where|usually)\b|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_BRANDS = re.compile(r"\b(?:brand|trade) names?(?: is| are)?:?\s+(?P<names>[^.;()\n]+)", re.IGNORECASE)
# HUS in "Hemolytic uremic syndrome (HUS) is ...", in the first or second line, before the verb.
_SHORT = re.compile(
    r"\A(?:[^\n]*\n)?(?:(?! (?:is|are|was|were|has|have|the|an?) )[^.()\n]){3,80} "
    r"\((?P<names>(?=[a-z0-9]*[A-Z][a-z0-9]*[A-Z])[A-Za-z0-9]{2,10})\)"
)
_BETWEEN = re.compile(r"[；;、,，/]|\s(?:and|or)\s")


@cache
def names(lang: Lang) -> dict[str, Any]:
    """Return everyday names and brands by table and formal name; `beside` has, by table, words beside a name."""
    return _read(f"names_{lang}")


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("descriptions").joinpath(f"{name}.toml").read_text("utf-8"))


def aliases_in(text: str) -> Iterator[str]:
    """Yield each alias in `text`: "aspirin" in "acetylsalicylic acid, also known as aspirin"."""
    for pattern in (_LABELLED, _IN_PROSE, _IN_ENGLISH, _BRANDS, _SHORT):
        for match in pattern.finditer(text):
            for name in _BETWEEN.split(match["names"]):
                if (alias := name.strip(" “”\"'")) and len(name) <= _MAX_CHARS and not re.search("[【】]", name):
                    yield alias


_DRUGS = """id med_name med_name_initial med_barcode med_approval component form dosage indication adverse_reactions
contraindications precautions company_name description mechanism_action cate_name drug_interactions storage pack period
approve_code status created_at"""
_DISEASES = """id disease_name overview clinical_manif complication epidemiology examination treatment cause diagnosis
differ_diag prevention prognosis create_at update_at"""
TABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"drugs_info": tuple(_DRUGS.split()), "disease": tuple(_DISEASES.split())}
)

NAME_COLUMNS: Mapping[str, str] = MappingProxyType({"drugs_info": "med_name", "disease": "disease_name"})
# Columns whose texts mention aliases of a row's name.
ALIAS_COLUMNS: Mapping[str, str] = MappingProxyType({"drugs_info": "description", "disease": "overview"})
# Words that may be beside a name; any other word makes it another drug or disease: an isomer, a combination, a type.
_BESIDE = {
    table: frozenset(word for lang in get_args(Lang) for word in names(lang)["beside"].get(table, ()))
    for table in NAME_COLUMNS
}
_DESCRIBED = _read("en")["tables"]  # for the columns, and those that people confuse: the same in both languages

SCHEMA = RequiredSchema(
    tables={table: ("id", name) for table, name in NAME_COLUMNS.items()},
    hint="check the path, or make the sample database: sql-agent data build --lang en",
    names={
        table: Naming(
            name,
            {ALIAS_COLUMNS[table]: aliases_in},
            {name: tuple(others) for lang in get_args(Lang) for name, others in names(lang)[table].items()},
            _BESIDE.get(table, frozenset()),
            {column: described.get("near", ()) for column, described in _DESCRIBED[table]["columns"].items()},
            {
                column: (described.get("label", ""), described.get("plural", ""), *described.get("also", ()))
                for column, described in _DESCRIBED[table]["columns"].items()
            },
        )
        for table, name in NAME_COLUMNS.items()
    },
)


def create_table_sql(table: str) -> str:
    """Return the CREATE TABLE statement of a table: `id` is the integer key, all other columns are text."""
    columns = ", ".join(f"{name} {'INTEGER PRIMARY KEY' if name == 'id' else 'TEXT'}" for name in TABLES[table])
    return f"CREATE TABLE {table} ({columns})"


_READING = Lock()  # of rollouts that start together, one reads the columns
_known: WeakKeyDictionary[Database, dict[str, Mapping[str, tuple[str, ...]]]] = WeakKeyDictionary()


def few_values(database: Database, table: str) -> Mapping[str, tuple[str, ...]]:
    """Return the values of each described column of `table` that has few short values, the most frequent value first.

    The columns are read at the first call. A column whose values the limits of a query cut is left out, and so is a
    column without a description, whose values may be private.
    """
    with _READING:
        tables = _known.setdefault(database, {})
        if table not in tables:
            described = {name for name, column in _DESCRIBED[table]["columns"].items() if column["kind"] != "id"}
            tables[table] = {
                column: values
                for column in database.schema.columns[table]
                if column in described and (values := tuple(_values_of(database, table, column)))
            }
        return tables[table]


def _values_of(database: Database, table: str, column: str) -> Iterator[str]:
    name = quoted(column)
    cells = f"FROM {quoted(table)} WHERE {name} IS NOT NULL"
    # Of many values, this reads a few rows.
    if not _short_texts(database, f"SELECT DISTINCT {name} {cells} LIMIT {_MOST_VALUES + 1}"):
        return
    counts = _short_texts(
        database, f"SELECT {name}, COUNT(*) AS number {cells} GROUP BY {name} ORDER BY number DESC, {name}"
    )
    if sum(int(str(number)) for _, number in counts) >= _CELLS_PER_VALUE * len(counts):
        yield from (str(cell) for cell, _ in counts if cell)


def _short_texts(database: Database, sql: str) -> Sequence[Row]:
    """Run `sql`, and return its rows if these are few and each has a short text as its first cell, else []."""
    answer = database.query(sql)
    is_few = answer.error is None and not answer.truncated and answer.count <= _MOST_VALUES
    return answer.records if is_few and all(_is_plain(cell) for cell, *_ in answer.records) else []


def _is_plain(cell: object) -> bool:
    if not isinstance(cell, str) or len(cell) > _MAX_VALUE_CHARS:
        return False
    return cell.isprintable() and cell == cell.strip() and "|" not in cell
