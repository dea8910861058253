"""The ways from a table to the rows of linked tables, also over a table that only links two others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from sql_agent.tasks.described.description import Description
from sql_agent.tasks.described.statement import Join
from sql_agent.tasks.described.words import plural_of


@dataclass(frozen=True)
class LinkPath:
    """A way from a table to `table`: `joins` lead there. `many` is whether one row may have several there."""

    table: str
    label: str
    plural: str
    joins: tuple[Join, ...]
    many: bool

    @property
    def key(self) -> str:
        """The column of the first table by which its rows are linked."""
        return self.joins[0].to


def link_paths(description: Description, table: str) -> list[LinkPath]:
    """Return the ways from `table` to other tables; of several ways to the rows of one table, none is clear."""
    found = [path for path in _paths(description, table) if path.table != table]
    ways = Counter((path.table, path.many) for path in found)
    labels = Counter(path.label for path in found)
    return [path for path in found if ways[path.table, path.many] == labels[path.label] == 1]


def is_bridge(description: Description, table: str) -> bool:
    """Return whether rows of a table have no name and link rows of other tables, as those of "lives in" do."""
    linked = {link.target[0] for link in description.links if link.source[0] == table and not link.contains}
    return description.tables[table].name is None and len(linked) > 1


def _paths(description: Description, table: str) -> Iterator[LinkPath]:
    tables, links = description.tables, [link for link in description.links if not link.contains]

    def plural(label: str, other: str) -> str:
        if label == tables[other].label or description.lang == "zh":
            return tables[other].plural if label == tables[other].label else label
        return plural_of(label)

    for link in links:
        (source, column), (target, key) = link.source, link.target
        if source == table:
            yield LinkPath(target, link.label, plural(link.label, target), (Join(target, key, column),), many=False)
        elif target == table and not is_bridge(description, source):
            of = tables[source]
            yield LinkPath(source, of.label, of.plural, (Join(source, column, key),), many=True)
        elif target == table:
            first = Join(source, column, key)
            for other in (each for each in links if each.source[0] == source and each.target[0] != table):
                second = Join(other.target[0], other.target[1], other.source[1], of=source)
                label = other.label
                yield LinkPath(other.target[0], label, plural(label, other.target[0]), (first, second), many=True)
