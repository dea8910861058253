"""Which words questions search: those whose cells are what people mean, also when only one cell has them."""

from __future__ import annotations

import random
import sqlite3
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from sql_agent.schemas import Lang
from sql_agent.tasks.described.catalog import Catalog
from sql_agent.tasks.described.description import Description
from sql_agent.tasks.described.link_questions import LinkQuestions
from sql_agent.tasks.described.names import OtherNames
from sql_agent.tasks.described.search_questions import SearchQuestions
from sql_agent.tasks.described.table_rows import read_database

_TABLES = """\
[tables.pest]
label = "pest"
plural = "pests"
name = "pest"
[tables.pest.columns.pest]
kind = "name"
label = "name"
[tables.pest.columns.enemies]
kind = "list"
label = "enemy"
separator = "; "
[tables.bird]
label = "bird"
plural = "birds"
name = "bird"
[tables.bird.columns.bird]
kind = "name"
label = "name"
[tables.bird.columns.food]
kind = "list"
label = "food"
separator = "; "
find = ["Which birds eat {value}?"]
[tables.bird.columns.reserve]
kind = "category"
label = "reserve"
[tables.bird.columns.food.then]
reserve = ["Where are the birds that eat {value} protected?"]
"""
_LINKS = """
[[links]]
source = ["bird", "food"]
target = ["pest", "pest"]
label = "pest that it eats"
contains = true
[[links]]
source = ["pest", "enemies"]
target = ["bird", "bird"]
label = "enemy"
contains = true
"""


def catalog_of(
    folder: Path, birds: Iterable[Sequence[str]], pests: Iterable[Sequence[str]] = (), more: str = "", lang: Lang = "en"
) -> Catalog:
    """Return the catalog of a database with the rows `birds` (name, food, reserve) and `pests` (name, enemies)."""
    with closing(sqlite3.connect(folder / "birds.db")) as connection, connection:
        connection.execute("CREATE TABLE bird (bird TEXT, food TEXT, reserve TEXT)")
        connection.execute("CREATE TABLE pest (pest TEXT, enemies TEXT)")
        connection.executemany("INSERT INTO bird VALUES (?, ?, ?)", birds)
        connection.executemany("INSERT INTO pest VALUES (?, ?)", pests)
    given = f'lang = "{lang}"\ndatabase = "birds.db"\n{_TABLES}{more}'
    return Catalog(Description.model_validate(tomllib.loads(given)), read_database(folder / "birds.db"))


@pytest.mark.parametrize(
    ("word", "misleads"),
    [
        ("米粒", True),  # more cells have 谷粒, which people say for it
        ("谷粒", False),
        ("水生甲虫类", True),  # far more cells have 水生甲虫
        ("水生甲虫", False),
        ("河岸小昆虫", True),  # other cells have 河岸的小昆虫
        ("淡水小昆虫", False),
        ("养殖鱼", True),  # all of its cells say 非养殖鱼
        ("seeds", False),  # letters may be inside another word, such as seedsman
    ],
)
def test_a_chinese_word_is_searched_only_if_its_cells_are_what_people_mean(
    tmp_path: Path, word: str, *, misleads: bool
) -> None:
    food = "米粒 谷粒 谷粒 谷粒 水生甲虫类 水生甲虫 水生甲虫 非养殖鱼 河岸小昆虫 河岸的小昆虫 淡水小昆虫"
    rows = [(f"鸟{number}", each, "湖") for number, each in enumerate([*food.split(), "seeds", "seedsman", "grain"])]
    said = '[said]\n"米粒" = ["谷粒"]\nseeds = ["grain", "seedsman"]\n'
    names = OtherNames(catalog_of(tmp_path, rows, more=said, lang="zh"), {})
    assert names.is_misleading("bird", "food", word) is misleads


def test_the_name_of_a_row_is_searched_even_if_only_one_cell_has_it(tmp_path: Path) -> None:
    rows = [("Red tern", "weevils; corn", "A"), ("Grey tern", "moths; corn", "B"), ("Pale tern", "moths; rye", "C")]
    catalog = catalog_of(tmp_path, rows, [("weevils", ""), ("ticks", "")])
    assert set(catalog.terms("bird", "food")) == {"weevils", "moths", "corn"}


def test_two_hops_lead_to_all_rows_that_people_mean(tmp_path: Path) -> None:
    birds = [("Red tern", "weevils; corn", "A"), ("Grey tern", "moths; corn", "B"), ("Pale tern", "ticks; fly", "C")]
    pests = [
        ("weevils", "Red tern; rain"),  # the only pest that lists the bird
        ("moths", "Grey tern; frost"),
        ("gnats", "Grey tern; frost"),  # as right an answer for the Grey tern
        ("ticks", "frost"),
        ("sheep fly", "frost"),  # a fly, too, but no item of a bird
    ]
    catalog = catalog_of(tmp_path, birds, pests, _LINKS)
    drafts = LinkQuestions(catalog, random.Random(0)).two_hops()
    asked = {draft.subject.name for draft in drafts if draft.subject and draft.subject.table == "bird"}
    assert asked == {"Red tern"}


def test_a_category_of_several_rows_is_named_once_without_the_rows(tmp_path: Path) -> None:
    birds = [("Red tern", "moths", "North"), ("Grey tern", "moths", "North"), ("Pale tern", "moths", "South")]
    catalog = catalog_of(tmp_path, [*birds, ("Rock tern", "corn", "East"), ("Song tern", "corn", "West")])
    found = {draft.facts for draft in SearchQuestions(catalog, random.Random(0)).search_column()}
    assert found == {("North", "South"), ("East", "West")}
