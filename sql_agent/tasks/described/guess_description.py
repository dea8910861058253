"""Guess the description of a database from its schema, keys and values, and give the reasons."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median

from sql_agent.database.schema import ForeignKey, fold
from sql_agent.errors import DataError
from sql_agent.questions.question_columns import language
from sql_agent.schemas import Lang
from sql_agent.tasks.described.description import Column, Description, Kind, Link, Table
from sql_agent.tasks.described.table_rows import MAX_ROWS, DatabaseRows, TableRows
from sql_agent.tasks.described.words import is_noun, is_verb, label_of, plural_of, singular_of, unit_of, wordings

DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?")
_YEAR = re.compile(r"(?:^|_|\b)(?:year|yr)(?:$|_|\b)|年份?$", re.IGNORECASE)
_ID = re.compile(r"(?:^|_|[a-z])(?:id|uuid|guid|key|code|no|num|number)s?$|编号$|代码$|号$", re.IGNORECASE)
_SURROGATE = re.compile(r"(?:^|_|[a-z])(?:id|ID|Id|rowid)$|编号$")  # the name of a key, for which nobody asks
_PREFIX = re.compile(r"^(?:d|t|tb|tbl|dim|fact)_", re.IGNORECASE)
_NAME = re.compile(r"(?:^|_|\b|[a-z])(?:name|title|label)$|名称?$|标题$|姓名$", re.IGNORECASE)
_NEVER_A_NAME = re.compile(
    r"mail|phone|fax|zip|post(?:al|code)|url|link|address|password|path|image|photo|description|comment|note", re.I
)
_NO_QUANTITY = re.compile(r"(?:^|_)(?:lat|lon|lng|long|latitude|longitude|ssn|zip|phone|fax|postal)(?:$|_|code)", re.I)
_NUMBER = re.compile(r"-?\d+\.\d+|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}")  # a number or a date, which names no row
_CODE = re.compile(r"[\w-]*\d[\w-]*", re.ASCII)
_ADJECTIVE = re.compile(r"^(?:is|was|are)[_\sA-Z]|(?:ed|ive|able|ible|ent|al|ous|ful)$|^是否?|^可")
_SEPARATORS = ("；", ";", "|", "、", "\n", ", ", ",", "，")
_FLAGS = (
    *({"yes", "no"}, {"y", "n"}, {"true", "false"}, {"t", "f"}, {"是", "否"}, {"有", "无"}, {"0", "1"}),
    *({"0.0", "1.0"},),
)
_MOSTLY = 0.9  # minimum share of the filled cells that a guess must fit
_LISTED = 0.4  # minimum share of the filled cells with a separator
_LONGEST_NAME, _LONGEST_ITEM, _LONGEST_CATEGORY = 80, 40, 40  # maximum numbers of characters
_MOST_CATEGORIES = 60
_VALUES_SHOWN = 8

Say = Callable[[str], None]
_Found = tuple[Kind, dict[str, str]]  # a kind, and the separator of a list or the unit of a number


def guess_description(database: DatabaseRows, path: str | None, lang: Lang | None, say: Say) -> Description:
    """Return the guessed description of `database`, whose file is `path`; `say` prints important guesses.

    `lang` None means the language of the texts. Empty tables are left out. Raises DataError when all tables are empty.
    """
    filled_tables = {name: table for name, table in database.tables.items() if table.rows}
    for name in database.tables:
        if name not in filled_tables:
            say(f"`{name}` is left out: it has no rows")
    if not filled_tables:
        raise DataError("every table of the database is empty", hint="fill the database first")
    lang = lang or _language(filled_tables.values(), say)
    keys = {name: _keys_of(table, filled_tables, say) for name, table in filled_tables.items()}
    tables = {name: _table(table, filled_tables, keys, lang, say) for name, table in filled_tables.items()}
    links = [
        Link(source=(name, key.column), target=(key.table, key.target), label=_link_label(key, tables[key.table].label))
        for name, of in keys.items()
        for key in of
    ]
    links_of_lists = list(_links_of_lists(filled_tables, tables, say))
    for link in links_of_lists:
        columns, column = tables[link.source[0]].columns, link.source[1]
        # A label without a plural, such as "offered by", is no word for several items.
        if columns[column].plural == columns[column].label:
            words = {"label": link.label, "plural": plural_of(link.label) if lang == "en" else link.label}
            columns[column] = columns[column].model_copy(update=words)
    return Description(lang=lang, database=path, tables=tables, links=(*links, *links_of_lists))


def _language(tables: Iterable[TableRows], say: Say) -> Lang:
    cells = [cell for table in tables for row in table.rows[:200] for cell in row if isinstance(cell, str)]
    names = [name for table in tables for name in (table.name, *table.columns)]
    share = sum(language(text) == "zh" for text in (*cells, *names)) / max(1, len(cells) + len(names))
    say(f"The language is {'Chinese' if share > 0.2 else 'English'}: {share:.0%} of the texts have a Chinese character")
    return "zh" if share > 0.2 else "en"


def _keys_of(table: TableRows, tables: Mapping[str, TableRows], say: Say) -> list[ForeignKey]:
    """Return the declared foreign keys, and for other columns the keys that names and values suggest."""
    found = [
        key
        for key in table.keys.foreign
        if key.table in tables and fold(key.target) in map(fold, tables[key.table].columns)
    ]
    declared = {fold(key.column) for key in found}
    for column in table.columns:
        cells = {cell for cell in table.cells(column) if cell is not None}
        if fold(column) in declared or not cells or (column,) == table.keys.primary:
            continue
        for other in tables.values():
            target = _target(column, other) if other is not table else None
            share = len(cells & set(other.cells(target))) / len(cells) if target is not None else 0.0
            if target is not None and share >= _MOSTLY:
                say(
                    f"`{table.name}.{column}` looks like a reference to `{other.name}.{target}`: {share:.0%} of its "
                    "values are there"
                )
                found.append(ForeignKey(column, other.name, target))
                break
    return found


def _target(column: str, other: TableRows) -> str | None:
    """Return the unique column of `other` to which the name of a `column` points, or None."""
    own = singular_of(label_of(other.name)).replace(" ", "")
    for target in other.columns:
        cells = other.cells(target)
        names = {fold(target)} if fold(target) not in {"id", "name", "code"} and _ID.search(target) else set()
        if (target,) == other.keys.primary or fold(target) in {"id", "code"}:
            names |= {f"{own}_{fold(target)}", f"{own}{fold(target)}", *([f"{own}_id", own] if cells else [])}
        if fold(column) in names and None not in cells and len(set(cells)) == len(cells):
            return target
    return None


def _link_label(key: ForeignKey, table_label: str) -> str:
    if fold(key.column) == fold(key.target):
        return table_label
    words = re.sub(r"\s*(?:\bid|\bcode|\bkey|编号|号)$", "", label_of(key.column)).strip()
    return words if words and not words.endswith(("number", "id")) else table_label


def _table(
    table: TableRows, tables: Mapping[str, TableRows], keys: Mapping[str, Sequence[ForeignKey]], lang: Lang, say: Say
) -> Table:
    label = label_of(_PREFIX.sub("", table.name))
    label = singular_of(label) if lang == "en" else label
    references = {fold(key.column) for key in keys[table.name]}
    referred = {fold(key.target) for of in keys.values() for key in of if key.table == table.name}
    kinds = {column: _kind(table, column, fold(column) in references, say) for column in table.columns}
    name = _name_column(table, kinds, referred, say)
    if name is not None and kinds[name][0] not in {"id", "number"}:
        kinds[name] = ("name", {})
    prefix = _common_prefix(table.columns)
    columns = {column: _column(table, column, kinds[column], prefix or label, lang) for column in table.columns}
    columns = {
        column: found.model_copy(update={"also": _also(found, columns, lang)}) for column, found in columns.items()
    }
    plural = plural_of(label) if lang == "en" else label
    return Table(label=label, plural=plural, name=name, columns=columns)


def _common_prefix(columns: Sequence[str]) -> str:
    """Return the first word of most column names, such as "emp" of EMP_NAME and EMP_PHONE; "" if there is none."""
    first, count = Counter(label_of(column).split()[0] for column in columns).most_common(1)[0]
    return first if count > max(2, len(columns) / 2) else ""


def _name_column(table: TableRows, kinds: Mapping[str, _Found], referred: set[str], say: Say) -> str | None:
    """Return the column that names a row: a short text that differs in nearly all rows, else a unique key."""
    most = _MOSTLY * len(table.rows)

    def fits(column: str) -> bool:
        texts = [cell for cell in table.cells(column) if isinstance(cell, str) and cell.strip()]
        return (
            len(texts) >= most
            and kinds[column][0] in {"text", "category", "id"}
            and not all(map(_NUMBER.fullmatch, texts))
            and 2 <= median(map(len, texts)) <= _LONGEST_NAME
            and max(map(len, texts)) <= 250
            and len(set(texts)) >= most
            and not _NEVER_A_NAME.search(column)
        )

    candidates = [column for column in table.columns if fits(column)]
    named = [column for column in candidates if _NAME.search(column)]
    plain = [column for column in candidates if kinds[column][0] != "id"]
    for column in (*named, *plain):
        share = len(set(table.cells(column))) / len(table.rows)
        say(f"`{table.name}.{column}` names a row: {share:.0%} of its values are different")
        return column
    referred_to = (c for c in table.columns if fold(c) in referred and "row" not in fold(c))
    natural = (c for c in table.keys.primary if len(table.keys.primary) == 1 and not _SURROGATE.search(c))
    for column in (*referred_to, *natural, *candidates):
        cells = table.cells(column)
        if None not in cells and len(set(cells)) == len(cells):
            say(f"`{table.name}` has no column of names: its rows are named by `{column}`")
            return column
    say(f"`{table.name}` has no column that names a row: its rows are only counted and grouped")
    return None


def _kind(table: TableRows, column: str, is_reference: bool, say: Say) -> _Found:
    cells = [cell for cell in table.cells(column) if cell is not None and str(cell).strip()]
    texts = [str(cell).strip() for cell in cells]
    distinct = set(texts)
    if is_reference or (column,) == table.keys.primary:
        return "id", {}
    if 1 < len(distinct) <= 2 and any({text.casefold() for text in distinct} <= flags for flags in _FLAGS):
        if not _ADJECTIVE.search(column) and not is_verb(label_of(column)):
            return "category", {}
        say(f"`{table.name}.{column}` looks like a flag: its values are {' and '.join(sorted(distinct))}")
        return "flag", {}
    numbers = [cell for cell in cells if isinstance(cell, int | float)]
    if cells and len(numbers) == len(cells):
        return _kind_of_numbers(table, column, numbers, say)
    return _kind_of_texts(table, column, texts, say) if texts else ("text", {})


def _kind_of_numbers(table: TableRows, column: str, numbers: Sequence[float], say: Say) -> _Found:
    if _YEAR.search(column) and all(1000 <= number <= 2999 and number == int(number) for number in numbers):
        say(f"`{table.name}.{column}` looks like a year: from {min(numbers)} to {max(numbers)}")
        return "date", {}
    if _NO_QUANTITY.search(column):
        return "text", {}
    is_id = _ID.search(column) and all(isinstance(number, int) for number in numbers)
    unit = unit_of(column)
    is_share = unit == "%" and max(map(abs, numbers)) <= 1  # 0.35 means 35 %
    return ("id", {}) if is_id else ("number", {"unit": "" if is_share else unit})


def _kind_of_texts(table: TableRows, column: str, texts: Sequence[str], say: Say) -> _Found:
    distinct = len(set(texts))
    dates = sum(DATE.fullmatch(text) is not None for text in texts) / len(texts)
    if dates >= _MOSTLY:
        say(f"`{table.name}.{column}` looks like a date: {dates:.0%} of cells")
        return "date", {}
    if (separator := _separator(texts)) is not None:
        share = sum(separator in text for text in texts) / len(texts)
        shown = "the line end" if separator == "\n" else separator.strip()
        say(f"`{table.name}.{column}` looks like a list separated by {shown}: {share:.0%} of cells")
        return "list", {"separator": separator}
    if distinct <= min(_MOST_CATEGORIES, 0.5 * len(texts)) and median(map(len, texts)) <= _LONGEST_CATEGORY:
        return "category", {}
    is_id = _ID.search(column) and distinct >= _MOSTLY * len(texts) and all(map(_CODE.fullmatch, texts))
    return ("id" if is_id else "text"), {}


def _separator(texts: Sequence[str]) -> str | None:
    """Return the separator of items in many cells, or None. Items must be short; some must be in several cells."""
    for separator in _SEPARATORS:
        share = sum(separator in text for text in texts) / len(texts)
        items = [item.strip() for text in texts for item in text.split(separator)]
        if share < _LISTED or max(map(len, items)) > 5 * _LONGEST_ITEM or median(map(len, items)) > _LONGEST_ITEM:
            continue
        repeated = sum(count for count in Counter(items).values() if count > 1) / len(items)
        sentences = sum(text.endswith(("。", "！", ".", "!")) for text in texts) / len(texts)
        numbers = sum(re.search(rf"\d{re.escape(separator)}\d", text) is not None for text in texts) / len(texts)
        if sentences > 0.3 or (separator == "," and numbers > 0.5):  # prose, or 12,50
            continue
        varies = len({text.count(separator) for text in texts}) > 1
        is_prose = sum(" " in item and len(item.split()) > 5 for item in items) / len(items) > 0.2
        if varies and not is_prose and (separator in {"；", ";", "|"} or repeated > 0.3):
            return separator
    return None


def _column(table: TableRows, column: str, found: _Found, owner: str, lang: Lang) -> Column:
    kind, extra = found
    comment = re.split(r"[：:，,（(]", table.keys.comments.get(column, ""))[0].strip()
    label = comment or label_of(column, owner)
    if kind == "flag":
        label = re.sub(r"^(?:is|was|are|是否|是)\s*", "", label) or label
    elif kind == "date" and lang == "en" and not re.search(r"date|time|year|day|birth|start|end|since|month", label):
        label = re.sub(r" (?:on|at)$", "", label) + " date"
    elif kind == "number" and extra.get("unit"):
        label = re.sub(rf"[\s(（]*{re.escape(label.split()[-1])}[)）]?$", "", label) or label
    if lang == "en" and kind == "list":
        label = singular_of(label)
    plural = plural_of(label) if lang == "en" and kind in {"list", "category"} else ""
    how: str = kind
    if kind == "date" and all(isinstance(cell, int | float | None) for cell in table.cells(column)):
        how = "year"
    elif kind == "flag" and is_verb(label):
        how = "flag_verb"
    elif (
        kind == "number" and lang == "en" and not extra["unit"] and " in " not in label and singular_of(label) != label
    ):
        how, label, plural = "number_of", f"number of {label}", label
    elif kind == "number" and label.endswith("数"):
        plural = label
    texts = {str(cell) for cell in table.cells(column) if cell is not None}
    shown = kind in {"category", "flag"} and len(texts) <= _VALUES_SHOWN
    return Column(
        kind=kind,
        label=label,
        plural=plural,
        ask=() if kind in {"id", "name"} else tuple(wordings(lang)["ask"][how]),
        separator=extra.get("separator", ""),
        unit=extra.get("unit", ""),
        values=tuple(sorted(texts)) if shown else (),
    )


def _also(column: Column, columns: Mapping[str, Column], lang: Lang) -> tuple[str, ...]:
    """Return other labels for a column: the label with a synonym for one word, or the last word of the label.

    A new label is left out if the label of another column contains its last word.
    """
    others = " ".join(other.label for other in columns.values() if other is not column).split()
    words = column.label.split()
    found = [
        re.sub(rf"\b{re.escape(word)}\b", other, column.label)
        for word, ways in wordings(lang)["synonyms"].items()
        for other in ways
    ]
    head = words[-1] if lang == "en" and len(words) > 1 and " of " not in column.label and is_noun(column.label) else ""
    if head and column.kind not in {"id", "flag"} and not unit_of(f"_{head}"):
        found.append(head)
    return tuple(dict.fromkeys(label for label in found if label != column.label and label.split()[-1] not in others))


def _links_of_lists(tables: Mapping[str, TableRows], described: Mapping[str, Table], say: Say) -> Iterator[Link]:
    """Yield a link for each list of which some items are names of rows of another table."""
    for name, table in tables.items():
        for column, of in described[name].columns.items():
            if of.kind != "list" or len(table.rows) >= MAX_ROWS:
                continue
            items = {i.strip() for cell in table.cells(column) if cell for i in str(cell).split(of.separator)} - {""}
            for other, target in ((o, d.name) for o, d in described.items() if o != name and d.name is not None):
                share = len(items & set(map(str, tables[other].cells(target)))) / max(1, len(items))
                if share >= 0.05 and described[other].columns[target].kind == "name":
                    say(f"`{name}.{column}` names rows of `{other}`: {share:.0%} of its items are in `{target}`")
                    label = described[other].label
                    yield Link(source=(name, column), target=(other, target), label=label, contains=True)
