"""Write a hint for an empty or incomplete query result: up to two statements to run instead, which find rows.

The statements are variants of the model's own statement. A variant corrects the spelling of a name, searches another
column or table that contains the text, drops conditions, selects a filled column, or finds a row by its alias. If a
result was cut off, the hint says how many rows there are, or how to read the rest of a cell. A hint shows the names of
rows, tables and columns, and parts of the statement, but never the content of another cell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from sqlglot import exp

from sql_agent.database.answers import CUT
from sql_agent.database.cell_texts import BETWEEN, CellTexts, longest_parts
from sql_agent.database.conditions import Condition, SearchedText, conditions, edited, only_table, without_aliases
from sql_agent.database.guard import check
from sql_agent.database.hint_statements import Place, Variants
from sql_agent.database.missing_joins import with_missing_joins
from sql_agent.database.name_index import NameIndex, comparable, rest_pattern
from sql_agent.database.schema import MAX_HINT_CHARS, TRY, fold, quoted
from sql_agent.database.source import Opened
from sql_agent.database.text_places import MAX_CHARS_SEARCHED, TextPlaces, is_at, whole
from sql_agent.errors import QueryError
from sql_agent.schemas import QueryAnswer

# The work is limited by counts, not by time, so that a statement gets the same hint on a busy machine.
MAX_CONDITIONS = 4
MAX_TEXTS = 2
MAX_LINES = 2
_MAX_PLACES = 3  # maximum number of columns in which each text of several conditions is searched
MAX_TRIED = 8  # maximum number of statements that are run for a hint
FEW_ROWS = 3  # a result with more rows gets no hint about empty columns
_MAX_ROWS = 200  # maximum number of rows whose cells are searched for parts of a text
_READ_INSTEAD = 5  # maximum number of filled columns that are read in place of an empty one


def suggested_statements(hint: str | None) -> tuple[str, ...]:
    """Return the statements that a hint tells the model to try, the best first."""
    lines = (hint or "").split("\n")
    return tuple(line.removeprefix(TRY) for line in lines if line.startswith(TRY))


class Hints(TextPlaces):
    """Writes hints for one database. `read` runs a SELECT under a short time limit and may raise QueryError."""

    def __init__(
        self, opened: Opened, names: NameIndex, texts: CellTexts, read: Callable[[str], Sequence[tuple[object, ...]]]
    ) -> None:
        super().__init__(opened, names, texts)
        self._dialect = opened.engine.dialect
        self._variants = Variants(self._schema, self._dialect, self._name_columns)
        self._read = read

    def hint(self, tree: exp.Query, answer: QueryAnswer) -> str | None:
        """Return a hint for the answer to `tree`, at most `MAX_HINT_CHARS` characters; None if no hint applies.

        A hint has one or two lines. A line is `try: ` and a statement that finds rows, or a remark. A hint applies if
        the result has no rows, was cut off, or has up to three rows with only ids and names, or if a list such as
        `name IN ('a', 'b')` or `name = 'a' OR name = 'b'` has a text that is not the name of a row.
        """
        records = answer.records
        counts_nothing = len(records) == 1 and all(cell in {None, 0} for cell in records[0])
        if not records or (counts_nothing and not _selects_a_column(tree)):
            return self._fitted(tree, self._after_nothing(tree))
        if tree.find(exp.In, exp.Or) and (missing := self._fitted(tree, self._after_missing_names(tree))):
            return missing
        if len(records) <= FEW_ROWS and (empty := self._fitted(tree, self._after_empty_columns(tree, answer))):
            return empty
        return self._after_cut(tree, answer) if answer.truncated else None

    def _after_cut(self, tree: exp.Query, answer: QueryAnswer) -> str | None:
        """Return a hint with the number of all rows, or with statements that read the rest of one row's cut cells.

        Return None if counting is too slow.
        """
        ((total,),) = self._try(f"SELECT COUNT(*) FROM ({tree.sql(self._dialect.grammar)}) AS rows_in_all") or ((0,),)
        if total == answer.count == 1:
            return self._fitted(tree, self._rests(tree, answer))
        if not isinstance(total, int) or total <= answer.count:
            return None
        more = "; select fewer columns to see more" if len(answer.columns) > 1 else ""
        return f"{answer.count} of {total} rows shown{more}"

    def _rests(self, tree: exp.Query, answer: QueryAnswer) -> Iterator[str]:
        """Yield a remark on each cut cell of the only row of `answer`, the longest first: how to read the rest of it.

        A remark is no statement to try, because the part of a cell that is shown has most answers.
        """
        if not isinstance(tree, exp.Select):
            return
        has_star = any(output.is_star for output in tree.selects)
        outputs = map(exp.column, answer.columns) if has_star else (each.unalias() for each in tree.selects)
        cells = zip(outputs, answer.records[0], strict=True)
        cut = [(len(cell), output) for output, cell in cells if isinstance(cell, str) and cell.endswith(CUT)]
        for length, output in sorted(cut, key=lambda each: -each[0]):
            column, start = _rest_of(output, length)
            rest = exp.Anonymous(this="substr", expressions=[column.copy(), exp.Literal.number(start)])
            if self._finds_rows(tree.select(rest, append=False)):
                column_sql, rest_sql = (each.sql(self._dialect.grammar) for each in (column, rest))
                yield f"{column_sql} is cut; the rest: {rest_sql}"

    def after_unknown_column(self, tree: exp.Query, remark: str | None) -> str | None:
        """Return a hint for `tree`, which reads an unknown column: a statement to try instead, then `remark`.

        If `remark` does not fit, there may be two statements.

        A statement may join the table that has the column, or search the table whose rows' names it asks for. It may
        replace a word that people use for a column, such as `symptoms`, or a misspelt name by the column's name. It may
        search other columns for the text that the unknown column was compared with. If none of these finds rows, the
        statement leaves out what its table lacks, or is one of those for an empty result.
        """
        table = only_table(tree, self._schema) or ""
        known = set(map(fold, self._schema.columns.get(table, ())))
        name = self._name_columns.get(table)
        texts = [
            replace(text, table=table, column=name and fold(name))
            for part in conditions(tree, self._schema, self._dialect)
            for text in part.texts
            if (column := text.node.find(exp.Column)) is not None and fold(column.name) not in known
        ][:MAX_TEXTS]
        variants = [self._variants.searched_at(tree, text, at) for text, at in self._places_in(table, texts, tree)]
        unknown = [column for column in tree.find_all(exp.Column) if fold(column.name) not in known]
        said = self._namings[table].said if table in self._namings else {}
        known_as = {_plain(words): column for column, called in said.items() for words in called}
        meant = [
            (column, known_as.get(_plain(column.name)) or self._schema.misspelt_column(column.name, table))
            for column in unknown
        ]
        renamed = [self._variants.renamed(tree, meant)] if all(name for _, name in meant) else []
        joined = []
        if self._schema.foreign_keys:
            joined = list(with_missing_joins(tree, self._schema, self._variants.identifier))
        room = MAX_HINT_CHARS + (len(self._line(tree)) if joined else 0)
        hint = self._fitted(tree, [*joined, *renamed, *self._of_named_rows(tree, known), *variants], room)
        if table and not hint:
            rest = self._variants.without_unknown(tree, table)
            nothing = chain.from_iterable(map(self._after_nothing, [tree, *rest]))
            hint = self._fitted(tree, rest, room) or self._fitted(
                tree, (each for each in nothing if isinstance(each, exp.Query)), room
            )
        with_remark = "\n".join([*(hint or "").splitlines()[:1], remark or ""])
        return with_remark if remark and len(with_remark) <= room else hint

    def _of_named_rows(self, tree: exp.Query, known: Collection[str]) -> list[exp.Query]:
        """Return statements that search another table for the text of `tree`, if `tree` asks only for its rows' names.

        The column of these names is not one of the `known` columns of the table that `tree` reads. [] for a `tree` that
        reads several tables or has several conditions.
        """
        outputs = {fold(output.name) if isinstance(output, exp.Column) else "" for output in tree.selects}
        tables = [table for table, name in self._name_columns.items() if name and outputs == {fold(name)}]
        parts = conditions(tree, self._schema, self._dialect)
        if not known or outputs <= set(known) or len(tables) != 1 or len(parts) != 1:
            return []
        there = [replace(text, table=tables[0], column=None) for text in parts[0].texts[:MAX_TEXTS]]
        return [self._variants.of_one_table(tree, place) for _, place in self._places_in(tables[0], there, tree)]

    def _places_in(
        self, table: str, texts: Sequence[SearchedText], tree: exp.Query
    ) -> list[tuple[SearchedText, Place]]:
        """Return the places in `table` of each of `texts`, first the names of rows that are equal to a text."""
        found = [(text, place) for text in texts for place in whole(self._names.exact(text.text), text)]
        found += [(text, place) for text in texts for place in self._places(text, tree)]
        return [(text, place) for text, place in found if place.table == table]

    def _fitted(self, tree: exp.Query, found: Iterable[exp.Query | str], room: int = MAX_HINT_CHARS) -> str | None:
        """Return up to two lines of `found`: its remarks, and those of its statements that find rows; None if none."""
        lines: list[str] = []
        tried = [self._line(tree)]
        for each in found:
            line = self._line(each)
            if "\n" in line or len("\n".join([*lines, line])) > room:
                continue
            if isinstance(each, exp.Query):
                if line in tried or len(tried) > MAX_TRIED:
                    continue
                tried.append(line)
                if not self._finds_rows(each):
                    continue
            lines.append(line)
            if len(lines) == MAX_LINES:
                break
        return "\n".join(lines) or None

    def _line(self, found: exp.Query | str) -> str:
        return found if isinstance(found, str) else f"{TRY}{found.sql(self._dialect.grammar)}"

    def _finds_rows(self, tree: exp.Query) -> bool:
        sql = tree.limit(1).sql(self._dialect.grammar)
        try:
            check(sql, self._schema, self._dialect)
        except QueryError:
            return False
        rows = self._try(sql)
        return bool(rows) and (_selects_a_column(tree) or any(cell not in {None, 0} for cell in rows[0]))

    def _try(self, sql: str) -> Sequence[tuple[object, ...]]:
        """Return the rows of a statement; () if the engine refuses the statement or is too slow."""
        try:
            return self._read(sql)
        except QueryError:
            return ()

    def _after_nothing(self, tree: exp.Query) -> Iterator[exp.Query | str]:
        """Yield statements to run in place of `tree`, the most helpful first, then remarks on texts not found.

        A condition that fewer rows meet tells more. If each condition finds rows, the commonest is changed or removed
        first, exact names last.
        """
        parts = list(conditions(tree, self._schema, self._dialect)[:MAX_CONDITIONS])
        is_alone = len(parts) == 1 and only_table(tree, self._schema) is not None
        rows = {part: 0 if is_alone else self._rows(part) for part in parts}
        failing = [part for part in parts if not rows[part]]
        parts.sort(key=lambda part: (self._is_exact(part), -rows[part]))
        texts = list(dict.fromkeys(text for part in failing for text in part.texts))[:MAX_TEXTS]
        rounds = [texts]  # the texts to change in each round
        words = [text for part in parts for text in part.texts if isinstance(text.node, exp.Like)]
        if not failing and len(words) == len(parts):  # one of the words may be in another column
            texts = [text for text in words if not self._is_name(text)][:MAX_TEXTS]
            rounds = [[text for text in texts if text not in words[-1:]], words]  # first not the rarest word
        dropped = [failing] if failing else [[part] for part in parts] or [[]]
        most = None if is_alone else _MAX_PLACES
        others = [text for part in parts if part not in failing for text in part.texts]
        met = {(text.table, text.column, fold(text.text)) for text in others if failing}
        everywhere = [(text, place) for text in texts for place in self._places(text, tree)[:most]]
        places = [(text, at) for text, at in everywhere if (at.table, fold(at.column), fold(at.text)) not in met]
        is_name_lost = any(self._is_name(text) for text in texts)
        yield from self._with_right_names(tree)
        # If other conditions find the same words, the failing ones are only dropped.
        are_met = bool(texts) and {fold(text.text) for text in texts} <= {word for *_, word in met}
        yield from self._variants.without(tree, failing if are_met else [])
        best = {
            text: place
            for text, place in reversed(places)
            if place.table == text.table and not isinstance(text.node, exp.Literal)
            if (fold(place.column), place.text) != (text.column, text.text)
        }
        if len(best) > 1:
            yield self._variants.all_at(tree, best)
        for changed in rounds:
            for text, place in places:
                if text in changed and (is_name_lost or place.table == text.table):
                    yield self._variants.searched_at(tree, text, place, parts)
        yield from self._shortened(tree, parts, rounds[0])
        if not is_name_lost:
            yield from self._variants.without(tree, dropped[0])
        yield from chain.from_iterable(self._shortened(tree, parts, changed) for changed in rounds[1:])
        for text, place in places:
            if not is_alone and place.table == text.table and (place.text == text.text or not place.is_part):
                yield self._variants.of_one_table(tree, place)
        yield from (self._variants.searched_at(tree, text, place, parts) for text, place in places)
        for each in dropped:
            yield from self._variants.without(tree, each)
        if not failing:
            yield from (self._variants.of_one_table(tree, part) for part in reversed(parts))
        found = {text for text, _ in everywhere}
        # Cells are not searched for a single letter, but names are.
        lost = [
            text
            for text in texts
            if text not in found
            and len(text.text) <= MAX_CHARS_SEARCHED
            and (len(text.text) > 1 or self._is_name(text))
        ]
        for text in lost:
            for place in self._longest_parts(text):
                yield self._variants.searched_at(tree, text, place, parts)
                yield self._variants.of_one_table(tree, place)
        yield from dict.fromkeys(map(_nowhere, lost))

    def _rows(self, part: Condition) -> int:
        """Return the number of rows that meet `part`, or 0 if `part` is not of one table."""
        rows = self._try(f"SELECT COUNT(*) FROM {quoted(part.table)} WHERE {part.sql}") if part.table else ()
        return int(str(rows[0][0])) if rows else 0

    def _shortened(self, tree: exp.Query, parts: Sequence[Condition], texts: Sequence[SearchedText]) -> list[exp.Query]:
        """Return a list with `tree`, in which the first possible text is shortened to a part of it, else [].

        The part occurs in rows that meet all other `parts`. If these rows are few, all of them are worth reading.
        """
        for text in texts:
            tests = [f"({part.sql})" for part in parts if text not in part.texts]
            if not tests or {part.table for part in parts} != {text.table} or not isinstance(text.node, exp.Like):
                continue
            for (table, column), cells in self._searched_cells(text):
                where = f"FROM {quoted(table)} WHERE {' AND '.join(tests)} LIMIT {_MAX_ROWS}"
                rows = self._try(f"SELECT {quoted(column)} {where}")
                beside = BETWEEN.join(cell.lower() for (cell,) in rows if isinstance(cell, str))
                found = longest_parts(text.text, cells, beside) if len(rows) > FEW_ROWS else []
                if found and 4 * len(found[0]) >= len(text.text):
                    return [self._variants.searched_at(tree, text, Place(table, column, found[0], is_part=True))]
        return []

    def _is_exact(self, part: Condition) -> bool:
        return any(self._is_name(text) and not isinstance(text.node, exp.Like) for text in part.texts)

    def _after_missing_names(self, tree: exp.Query) -> Iterator[exp.Query | str]:
        """Yield statements to run instead if a list of names has texts that name no row."""
        yield from self._with_right_names(tree)
        for text in self._missing_names(tree)[:MAX_TEXTS]:
            places = self._places(text, tree)
            yield from (self._variants.searched_at(tree, text, place) for place in places if not is_at(place, text))
            if not places:
                yield _nowhere(text)

    def _with_right_names(self, tree: exp.Query) -> Iterator[exp.Query]:
        """Yield the statement with the most similar names in place of the texts that `_missing_names` returns."""
        changes: list[tuple[exp.Expr, exp.Expr | None]] = []
        for text in self._missing_names(tree):
            names = chain.from_iterable(self._names.find(text.text))
            literal = text.node if isinstance(text.node, exp.Literal) else text.node.find(exp.Literal)
            right = [exp.Literal.string(name.text) for name in names if is_at(name, text)]
            changes += [(literal, name) for name in right[:1] if literal is not None]
        if changes:
            yield edited(tree, changes)

    def _missing_names(self, tree: exp.Query) -> list[SearchedText]:
        """Return the texts in lists of names that name no row; `name = 'a' OR name = 'b'` is such a list, too."""
        listed: list[SearchedText] = []
        for part in conditions(tree, self._schema, self._dialect):
            names = [text for text in part.texts if self._is_name(text)]
            equal = [text for text in names if isinstance(text.node, exp.EQ)]
            listed += [text for text in names if isinstance(text.node, exp.Literal)]
            listed += equal if len(equal) > 1 else []
        return [text for text in listed if not self._is_listed(text)][:MAX_CONDITIONS]

    def _is_listed(self, text: SearchedText) -> bool:
        if any(is_at(name, text) and name.text == text.text for name in self._names.exact(text.text)):
            return True
        # The engine decides, because the index is limited in size and MySQL ignores case.
        equal = f"{quoted(text.column or '')} = {self._dialect.text_literal(text.text)}"
        return bool(self._try(f"SELECT 1 FROM {quoted(text.table or '')} WHERE {equal} LIMIT 1"))

    def _after_empty_columns(self, tree: exp.Query, answer: QueryAnswer) -> Iterator[exp.Query | str]:
        """If the result has only names, yield a remark on its empty columns and statements that read others."""
        table = only_table(tree, self._schema)
        if table is None or any(output.is_star for output in tree.selects):
            return
        places = _empty_columns(answer)
        filled = {fold(each.unalias().name) for at, each in enumerate(tree.selects) if at not in places}
        if filled - {"id", fold(self._name_columns[table] or "")}:
            return
        outputs = [tree.selects[place] for place in places]
        empty = {fold(each.unalias().name): each for each in outputs if isinstance(each.unalias(), exp.Column)}
        order = list(map(fold, self._schema.columns[table]))
        first = next((order.index(name) for name in empty if name in order), None)
        if first is None:
            return
        instead = self._filled_columns(tree, table)
        names = ", ".join(output.unalias().name for output in empty.values())
        yield f"empty here: {names}" + ("; so are the other columns" if instead == [] else "")

        mistaken = self._namings[table].near if table in self._namings else {}
        near = {fold(column): set(map(fold, others)) for column, others in mistaken.items()}

        def distance(column: str) -> tuple[int, int]:
            asked, other = order[first], fold(column)
            rank = 0 if asked in near.get(other, ()) else 1 if other in near.get(asked, ()) else 2
            return rank, abs(order.index(other) - first)

        yield from self._in_other_rows(tree, places)
        if nearest := sorted(instead or (), key=distance)[:_READ_INSTEAD]:
            yield self._variants.reading(tree, nearest, instead_of=list(empty.values()))

    def _in_other_rows(self, tree: exp.Query, places: Sequence[int]) -> Iterator[exp.Query]:
        """Yield the statement with another name: first the names of rows whose alias it searches, then longer names.

        A longer name adds only words of `Naming.beside`. Statements whose output columns with the indexes
        `places` are empty are left out.
        """
        texts = [text for part in conditions(tree, self._schema, self._dialect) for text in part.texts]
        for text in texts if len(texts) == 1 and self._is_name(texts[0]) else ():
            found, part = self._names.find(text.text), comparable(text.text)
            rest = rest_pattern(self._namings[text.table].beside)
            longer = [name for name in found.longer if rest.fullmatch(comparable(name.text).replace(part, "", 1))]
            for name in (*found.aliases, *longer)[:MAX_TRIED]:
                other = self._variants.searched_at(tree, text, Place(name.table, name.column, name.text))
                rows = self._try(other.sql(self._dialect.grammar)) if is_at(name, text) else ()
                if not all(_is_empty(row[place]) for row in rows for place in places):
                    yield other

    def _filled_columns(self, tree: exp.Query, table: str) -> list[str] | None:
        """Return columns that `tree` does not select but that have content in its first rows; None without rows."""
        known = {"id", fold(self._name_columns[table] or ""), *(fold(output.unalias().name) for output in tree.selects)}
        others = [column for column in self._schema.columns[table] if fold(column) not in known]
        where = tree.args.get("where")
        condition = f"WHERE {without_aliases(where.this).sql(self._dialect.grammar)}" if where is not None else ""
        rows = self._try(f"SELECT {', '.join(map(quoted, others))} FROM {quoted(table)} {condition} LIMIT {FEW_ROWS}")
        if not rows:
            return None
        columns = zip(others, zip(*rows, strict=True), strict=True)
        return [column for column, cells in columns if not all(map(_is_empty, cells))]


def _rest_of(output: exp.Expr, length: int) -> tuple[exp.Expr, int]:
    """Return the text of which `output` is a part, and where in this text the rest begins.

    The first `length` - 1 characters of `output` are shown. If `output` is substr(column, start), the text is the
    column, so that calls of substr do not nest; else the text is `output` itself.
    """
    parts = list(output.iter_expressions())
    is_rest = output.sql().casefold().startswith("substr") and len(parts) == 2
    if is_rest and isinstance(parts[0], exp.Column) and parts[1].name.isdigit():
        return parts[0], int(parts[1].name) - 1 + length
    return output, length


def _plain(words: str) -> str:
    """Return `words` in lower case, without underscores, blanks and a final s, for comparison."""
    return fold(words).replace("_", "").replace(" ", "").removesuffix("s")


def _nowhere(text: SearchedText) -> str:
    return f"nothing is like '{text.text}'; LIKE '%part%' finds parts"


def _selects_a_column(tree: exp.Query) -> bool:
    """Return whether a SELECT outputs a plain column or `*`; if not, a single record may be an aggregate."""
    return any(output.is_star or isinstance(output.unalias(), exp.Column) for output in tree.selects)


def _empty_columns(answer: QueryAnswer) -> list[int]:
    return [place for place, cells in enumerate(zip(*answer.records, strict=True)) if all(map(_is_empty, cells))]


def _is_empty(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())
