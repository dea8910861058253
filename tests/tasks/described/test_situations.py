"""What people's questions are like: they ask for a part of a text, tell other things beside it, and miss at first."""

from __future__ import annotations

import random
import re
import sqlite3
import tomllib
from collections.abc import Iterator
from contextlib import closing
from itertools import islice, pairwise
from pathlib import Path
from statistics import mean

import pytest

from sql_agent.config.settings import load_settings
from sql_agent.database import Database
from sql_agent.database.hints import suggested_statements
from sql_agent.schemas import Question
from sql_agent.tasks.described.catalog import Catalog
from sql_agent.tasks.described.described_task import described_task
from sql_agent.tasks.described.description import Description, read_description
from sql_agent.tasks.described.detail_questions import DetailQuestions
from sql_agent.tasks.described.generate import _in_turn, make_question_files
from sql_agent.tasks.described.link_questions import LinkQuestions
from sql_agent.tasks.described.row_questions import RowQuestions
from sql_agent.tasks.described.search_questions import SearchQuestions
from sql_agent.tasks.described.table_rows import read_database
from sql_agent.tasks.described.words import half, wordings
from sql_agent.tasks.described.yes_no_questions import YesNoQuestions

_BIRDS = """\
lang = "en"
database = "birds.db"
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
near = ["places"]
asides = ["I saw one with {value}. {question}", "Fond of {value}. {question}", "My {value} are gone. {question}",
          "It took {value} from me. {question}"]
ask = ["What does {name} eat?"]
find = ["Which birds eat {value}?"]
has = ["eat {value}"]
[tables.bird.columns.places]
kind = "list"
label = "place"
plural = "places"
separator = "; "
near = ["food"]
ask = ["Where does {name} live?"]
find = ["Which birds live in {value}?"]
has = ["live in {value}"]
[tables.bird.columns.notes]
kind = "text"
label = "note"
plural = "notes"
near = ["food", "places"]
ask = ["What is noted of {name}?"]
mention = ["What about {value} and {name}?"]
mentioned = ["desert", "eggs"]
[tables.bird.columns.notes.parts.hardship]
ask = ["Where does {name} suffer?"]
words = ["desert", "winters"]
[tables.bird.columns.notes.parts.hunts]
instead = "food"
words = ["hunts"]
[tables.bird.searches.surroundings]
columns = ["places", "notes"]
ask = ["Which birds will I meet around {value}?"]
"""
_FOOD = re.findall(
    r"\w+",
    "worms seeds berries midges minnows acorns beetles spiders carrion nectar snails plankton grass roots shrimps ants "
    "moths frogs lizards voles eels mussels crabs buds",
)
_PLACES = re.findall(
    r"\w+",
    "marshes moorland gardens cliffs orchards reedbeds islands meadows quarries towns heaths estuaries lakes dunes "
    "hedges parks ditches deserts forests steppes canals farms fjords lagoons",
)
_NOTES = (
    "It sings before dawn, often from a chimney",
    "It migrates across the desert in autumn",
    "A ringed female reached eleven years",
    "The nest is lined with feathers",
    "Magpies take many of the eggs",
    "In severe winters whole flocks starve",
    "Windows kill more of them than falcons do",
    "It hunts at dusk over water",
)
_FIRST = ("Grey", "Great", "Lesser", "Red", "Black", "Common", "Pale", "Rock", "Tree", "Song", "Marsh", "Snow")
_SECOND = ("wagtail", "shrike", "bunting", "plover", "warbler", "finch")


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, list[Question]], Database]]:
    """The questions about 72 birds, by split, and the database."""
    folder, chosen = tmp_path_factory.mktemp("birds"), random.Random(0)
    with closing(sqlite3.connect(folder / "birds.db")) as connection, connection:
        connection.execute("CREATE TABLE bird (id INTEGER PRIMARY KEY, bird TEXT, food TEXT, places TEXT, notes TEXT)")
        for number, name in enumerate(f"{first} {second}" for first in _FIRST for second in _SECOND):
            food, places = ("; ".join(chosen.sample(items, 2)) for items in (_FOOD, _PLACES))
            notes = None if number % 6 == 0 else ". ".join(chosen.sample(_NOTES, 4)) + "."
            row = (name, food if number % 5 else None, places, notes)
            connection.execute("INSERT INTO bird (bird, food, places, notes) VALUES (?, ?, ?, ?)", row)
    file = folder / "birds.toml"
    said = "\n".join(f'{food} = ["{food}kins"]' for food in _FOOD)
    file.write_text(f"{_BIRDS}[said]\n{said}\n", encoding="utf-8")
    task = described_task(file)
    made = make_question_files(read_description(file), folder / "birds.db", task, folder / "made", per_type=60)
    with task.open_database(load_settings()) as database:
        yield made, database


def everything(made: dict[str, list[Question]]) -> list[Question]:
    return [question for questions in made.values() for question in questions]


def test_a_part_of_a_text_is_the_sentences_with_one_of_its_words(
    birds: tuple[dict[str, list[Question]], Database],
) -> None:
    made, _ = birds
    asked = [q for q in everything(made) if q.task_type == "part"]
    assert asked
    for question in asked:
        (cell,) = {item.quote for item in question.evidence}
        sentences = cell.rstrip(".").split(". ")
        assert question.answer.split("; ") == [each for each in sentences if "desert" in each or "winters" in each]


def test_a_detail_is_the_one_sentence_of_a_cell_with_a_word(
    birds: tuple[dict[str, list[Question]], Database],
) -> None:
    asked = [q for q in everything(birds[0]) if q.task_type == "mention"]
    assert asked
    for question in asked:
        (word,) = re.findall(r"hat about (\w+) and ", question.question)
        (cell,) = {item.quote for item in question.evidence}
        assert word in {"desert", "eggs"}
        assert [each for each in cell.rstrip(".").split(". ") if word in each] == [question.answer]


def test_a_column_is_asked_about_as_often_as_its_share_says_and_its_longer_cells_are_asked_more(
    birds: tuple[dict[str, list[Question]], Database],
) -> None:
    path = Path(str(birds[1].source))
    text = _BIRDS.replace('label = "place"\n', 'label = "place"\nshare = 3\n')
    description = Description.model_validate(tomllib.loads(text))
    catalog = Catalog(description, read_database(path))
    drafts = list(islice(RowQuestions(catalog, random.Random(0)).lookup(), 400))
    first = [draft.statement.outputs[0].column for draft in _in_turn(drafts, description)][:60]
    assert first.count("places") > 2 * first.count("food") > 0
    asked = [len(str(draft.expected[0][0])) for draft in drafts if draft.statement.outputs[0].column == "places"]
    assert sum(asked) / len(asked) > 0.5 + mean(len(str(row.values["places"])) for row in catalog.rows["bird"])


def test_another_cell_answers_where_the_cell_is_empty(birds: tuple[dict[str, list[Question]], Database]) -> None:
    made, database = birds
    asked = [q for q in everything(made) if q.task_type == "elsewhere"]
    assert {" eat?" in q.question for q in asked if q.answer == "It hunts at dusk over water"} == {True}
    for question in asked:
        first, *_, last = (database.query(sql).records for sql in question.statements)
        assert not any(cell for row in first for cell in row)
        assert any(question.answer.partition("; ")[0] in str(cell) for row in last for cell in row)
    refused = [q for q in everything(made) if q.task_type == "unanswerable" and " eat?" in q.question]
    read = [database.query(q.statements[0].replace("food", "notes", 1)).records for q in refused]
    assert refused and not any("hunts" in str(cell) for records in read for row in records for cell in row)


def test_another_row_answers_where_the_row_says_that_it_is_this_one(tmp_path: Path) -> None:
    names = {"Peewit": "Lapwing", "Windhover": "Kestrel", "Dabchick": "Grebe", "Throstle": "Thrush"}
    with closing(sqlite3.connect(tmp_path / "birds.db")) as connection, connection:
        connection.execute("CREATE TABLE bird (bird TEXT, food TEXT, places TEXT, notes TEXT)")
        rows: list[tuple[str | None, ...]] = [
            (name, None, None, f"Proper name: {proper}. Song: loud") for name, proper in names.items()
        ]
        rows += [
            (proper, f"{proper.lower()} seeds", "parks", f"Popular name: {name}.") for name, proper in names.items()
        ]
        connection.executemany("INSERT INTO bird VALUES (?, ?, ?, ?)", rows)
    part = '[tables.bird.columns.notes.parts.proper]\nask = ["What is {name} properly?"]\nlabel = "Proper name:"\n'
    text = _BIRDS.replace(
        "[tables.bird.columns.notes.parts.hardship]",
        f'{part}same_row = ["food"]\n[tables.bird.columns.notes.parts.hardship]',
        1,
    )
    catalog = Catalog(Description.model_validate(tomllib.loads(text)), read_database(tmp_path / "birds.db"))
    drafts = [draft for draft in RowQuestions(catalog, random.Random(0)).elsewhere() if draft.subject]
    found = {(d.subject.name, d.statement.where[0].value, *d.facts) for d in drafts if d.subject}
    assert {(name, proper, f"{proper.lower()} seeds") for name, proper in names.items()} <= found
    assert {draft.statements[0].where[0].value for draft in drafts} >= set(names)


def test_similar_rows_are_asked_whether_they_are_the_same_and_which_of_them_has_an_item(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "birds.db")) as connection, connection:
        connection.execute("CREATE TABLE bird (bird TEXT, food TEXT, places TEXT, notes TEXT)")
        food = ("seeds; worms", "worms; seeds", "seeds; moths", "worms; voles", "seeds; worms")
        rows = [
            (f"{name} finch", eaten, "parks; heaths; lakes; dunes") for name, eaten in zip(_FIRST, food, strict=False)
        ]
        connection.executemany("INSERT INTO bird (bird, food, places) VALUES (?, ?, ?)", rows)
    ways = 'ask_same = ["Do {name} and {other} eat alike?"]\nask_which = ["{name} or {other}, who eats {value}?"]\n'
    text = _BIRDS.replace('label = "food"\n', f'label = "food"\n{ways}', 1)
    catalog = Catalog(Description.model_validate(tomllib.loads(text)), read_database(tmp_path / "birds.db"))
    details = DetailQuestions(catalog, random.Random(0))
    asked, chosen = list(details.same()), list(details.which())
    assert len(asked) > 9 and chosen
    assert {draft.facts for draft in asked[::2]} == {("yes",)} and {draft.facts for draft in asked[1::2]} == {("no",)}
    for draft in asked:
        one, other = (set(str(cell).split("; ")) for _, cell in draft.expected)
        assert draft.facts[0] == ("yes" if one == other else "no")
    for draft in chosen:
        having = [name for name, cell in draft.expected if draft.wording.slots["value"] in str(cell)]
        assert having == [*draft.facts]


def test_a_part_of_a_cell_is_asked_of_the_rows_that_have_something(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "birds.db")) as connection, connection:
        connection.execute("CREATE TABLE bird (bird TEXT, food TEXT, places TEXT, notes TEXT)")
        notes = "It sings. {} die in the desert"
        rows = [(f"{each} tern", "nectar; seeds", notes.format(each)) for each in _FIRST[:3]] + [
            ("Owl", "voles", "Shy")
        ]
        connection.executemany("INSERT INTO bird (bird, food, notes) VALUES (?, ?, ?)", rows)
    ways = 'then = {"notes.hardship" = ["Where do eaters of {value} suffer?"]}\n'
    text = _BIRDS.replace('label = "food"\n', f'label = "food"\n{ways}', 1)
    catalog = Catalog(Description.model_validate(tomllib.loads(text)), read_database(tmp_path / "birds.db"))
    drafts = [*SearchQuestions(catalog, random.Random(0)).search_column()]
    assert {draft.facts for draft in drafts} == {tuple(f"{each} tern: {each} die in the desert" for each in _FIRST[:3])}
    with pytest.raises(ValueError, match="is not one of the columns"):
        Description.model_validate(tomllib.loads(text.replace('"notes.hardship"', '"song.hardship"')))


def test_a_word_inside_an_unclear_word_does_not_make_a_part(tmp_path: Path) -> None:
    cells = (
        "Sings. It crosses the desert",
        "Sings. Breeds in deserted barns. It crosses the desert",
        "Shy. Deserted barns",
    )
    with closing(sqlite3.connect(tmp_path / "birds.db")) as connection, connection:
        connection.execute("CREATE TABLE bird (bird TEXT, food TEXT, places TEXT, notes TEXT)")
        rows = zip(("Tern", "Wader", "Owl"), cells, strict=True)
        connection.executemany("INSERT INTO bird (bird, notes) VALUES (?, ?)", rows)
    text = _BIRDS.replace('words = ["desert", "winters"]', 'words = ["desert"]\nunclear = ["deserted"]')
    catalog = Catalog(Description.model_validate(tomllib.loads(text)), read_database(tmp_path / "birds.db"))
    drafts = [*RowQuestions(catalog, random.Random(0)).part()]
    assert {draft.facts for draft in drafts} == {("It crosses the desert",)}, "the wader's cell is unclear"


def test_nothing_is_asked_of_rows_with_an_item_that_is_itself_the_name_of_a_row(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "birds.db")) as connection, connection:
        connection.execute("CREATE TABLE bird (bird TEXT, food TEXT, places TEXT, notes TEXT)")
        rows = [(f"{each} tern", "nectar; seeds", "cliffs") for each in _FIRST[:3]] + [("seeds", "voles", "dunes")]
        connection.executemany("INSERT INTO bird (bird, food, places) VALUES (?, ?, ?)", rows)
    ways = 'then = {"places" = ["Where do eaters of {value} live?"]}\n'
    text = _BIRDS.replace('label = "food"\n', f'label = "food"\n{ways}', 1)
    catalog = Catalog(Description.model_validate(tomllib.loads(text)), read_database(tmp_path / "birds.db"))
    drafts = [*SearchQuestions(catalog, random.Random(0)).search_column()]
    assert {each.value for draft in drafts for each in draft.conditions} == {"nectar"}


def test_no_is_never_the_answer_for_a_word_of_a_claim_that_the_cell_says_in_another_word(tmp_path: Path) -> None:
    places = ("marshes; cliffs", "lakes; dunes", "cliffs; dunes", "marshes; heaths", "lakes; heaths", "heaths; parks")
    with closing(sqlite3.connect(tmp_path / "birds.db")) as connection, connection:
        connection.execute("CREATE TABLE bird (bird TEXT, food TEXT, places TEXT, notes TEXT)")
        rows = [(f"{first} {number}", "seeds", place) for first in _FIRST[:4] for number, place in enumerate(places)]
        connection.executemany("INSERT INTO bird (bird, food, places) VALUES (?, ?, ?)", rows)
    confirm = 'confirm = ["Does {name} live in {value}?"]\nask = ["Where does {name} live?"]\n'
    claim = '[tables.bird.claims.wet]\ncolumns = ["places"]\nask = ["Is {name} wet?"]\nyes = ["marsh", "lake"]\n'
    text = _BIRDS.replace('ask = ["Where does {name} live?"]\n', confirm, 1) + claim
    catalog = Catalog(Description.model_validate(tomllib.loads(text)), read_database(tmp_path / "birds.db"))
    asked = [*islice(YesNoQuestions(catalog, random.Random(0)).yes_no(), 400)]
    found = {
        (draft.wording.slots["value"], str(draft.subject.values["places"]))
        for draft in asked
        if draft.subject and draft.facts == ("no",) and "value" in draft.wording.slots
    }
    wet = {value for value, cell in found if "marsh" in cell or "lake" in cell}
    assert wet and not wet & {"marshes", "lakes"}
    assert {value for value, cell in found if cell == "heaths; parks"} & {"marshes", "lakes"}


def test_questions_over_two_tables_take_the_links_in_turn(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "birds.db")) as connection, connection:
        connection.execute("CREATE TABLE bird (bird TEXT, food TEXT, places TEXT, notes TEXT)")
        connection.execute("CREATE TABLE pest (pest TEXT, enemies TEXT)")
        rows = [(f"{each} tern", f"{food}; ants", "parks") for each, food in zip(_FIRST, _FOOD, strict=False)]
        connection.executemany("INSERT INTO bird (bird, food, places) VALUES (?, ?, ?)", rows)
        pests = [(food, "nobody") for food in _FOOD[:12]] + [("rats", "Red tern")]
        connection.executemany("INSERT INTO pest VALUES (?, ?)", pests)
    pest = '[tables.pest]\nlabel = "pest"\nplural = "pests"\nname = "pest"\n[tables.pest.columns.pest]\nkind = "name"\n'
    pest += 'label = "name"\n[tables.pest.columns.enemies]\nkind = "list"\nlabel = "enemy"\nseparator = "; "\n'
    ends = ('["bird", "food"]', '["pest", "pest"]'), ('["pest", "enemies"]', '["bird", "bird"]')
    links = [f'[[links]]\nsource = {a}\ntarget = {b}\nlabel = "it"\ncontains = true\n' for a, b in ends]

    def tables_of_first(links: str) -> set[str]:
        description = Description.model_validate(tomllib.loads(_BIRDS + pest + links))
        catalog = Catalog(description, read_database(tmp_path / "birds.db"))
        return {draft.statements[0].table for draft in islice(LinkQuestions(catalog, random.Random(0)).two_hops(), 4)}

    assert tables_of_first("".join(links)) == {"bird", "pest"}
    one = "most = 1\n"  # "the food of X" is not asked where X eats something else, too
    assert tables_of_first(one.join((*links, ""))) == {"pest"}


def test_a_remark_in_yes_no_form_stands_beside_other_questions_only(
    birds: tuple[dict[str, list[Question]], Database],
) -> None:
    remarks = [each.replace("{question}", "").strip() for each in wordings("en")["asides_in_doubt"]]
    asked = [question for question in everything(birds[0]) if any(each in question.question for each in remarks)]
    assert asked and not {question.answer for question in asked} & {"yes", "no"}


def test_every_other_part_has_several_items_as_long_as_there_are_such_parts(
    birds: tuple[dict[str, list[Question]], Database],
) -> None:
    path = Path(str(birds[1].source))
    catalog = Catalog(read_description(path.with_suffix(".toml")), read_database(path))
    sizes = [len(draft.facts) for draft in RowQuestions(catalog, random.Random(0)).part()]
    last = max(place for place, size in enumerate(sizes) if size > 1)
    assert 1 in sizes[:last] and not [pair for pair in pairwise(sizes[:last]) if pair == (1, 1)]


def test_only_the_columns_and_pairs_that_people_ask_about_are_asked(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "birds.db")) as connection, connection:
        connection.execute("CREATE TABLE bird (bird TEXT, food TEXT, places TEXT, notes TEXT)")
        rows = [(f"{n} {kind}", "seeds; worms", "parks; heaths") for kind in ("finch", "tern") for n in range(3)]
        rows += [("Red owl", "seeds", "parks"), ("Grey owl", "worms", "heaths")]
        connection.executemany("INSERT INTO bird (bird, food, places) VALUES (?, ?, ?)", rows)
    lists = 'name = "bird"\nalike = ["food"]\nasked = {search = ["food"], comparison = ["places"], any_of = []}\n'
    pairs = 'pairs = {two_conditions = [["food", "food"]], columns = []}\n'
    own = 'find_two = ["Which eat {value} and {and_other}?"]\nfind = ["Which birds eat'
    text = _BIRDS.replace('name = "bird"\n', lists + pairs, 1).replace('find = ["Which birds eat', own)
    (tmp_path / "birds.toml").write_text(text, encoding="utf-8")
    catalog = Catalog(read_description(tmp_path / "birds.toml"), read_database(tmp_path / "birds.db"))
    searches, about_rows = SearchQuestions(catalog, random.Random(0)), RowQuestions(catalog, random.Random(0))
    assert not [*about_rows.columns()]
    assert {condition.column for draft in searches.search() for condition in draft.conditions} == {"food"}
    assert {frozenset(c.value for c in draft.conditions) for draft in searches.two_conditions()} == {
        frozenset({"seeds", "worms"})
    }
    compared = list(islice(about_rows.comparison(), 40))
    assert {draft.statement.outputs[1].column for draft in compared} == {"places"}
    finches = [draft for draft in compared if draft.facts[0].split(":")[0].endswith("finch")]
    assert finches and all("finch:" in draft.facts[1] for draft in finches)  # the same food, and a name that ends alike


def test_a_word_is_searched_in_all_columns_that_the_description_searches_together(
    birds: tuple[dict[str, list[Question]], Database],
) -> None:
    made, database = birds
    asked = [q for q in everything(made) if q.task_type == "related" and "will I meet around" in q.question]
    assert asked
    for question in asked:
        (sql,) = question.statements
        assert re.search(r"WHERE places LIKE ('%\w+%') OR notes LIKE \1$", sql)
        assert {name for (name,) in database.query(sql).records} == set(question.answer.split("; "))


def test_a_searched_word_is_also_found_inside_longer_items(tmp_path: Path) -> None:
    food = ["worms", "worms; seeds", "seeds; earthworms", "nectar", "nectar"]
    with closing(sqlite3.connect(tmp_path / "birds.db")) as connection, connection:
        connection.execute("CREATE TABLE bird (bird TEXT, food TEXT, places TEXT, notes TEXT)")
        rows = [(f"Bird {number}", eaten) for number, eaten in enumerate(food)]
        connection.executemany("INSERT INTO bird (bird, food) VALUES (?, ?)", rows)
    (tmp_path / "birds.toml").write_text(_BIRDS, encoding="utf-8")
    catalog = Catalog(read_description(tmp_path / "birds.toml"), read_database(tmp_path / "birds.db"))
    drafts = SearchQuestions(catalog, random.Random(0)).search()
    found = {condition.value: set(draft.facts) for draft in drafts for condition in draft.conditions}
    assert found["worms"] == {"Bird 0", "Bird 1", "Bird 2"}
    assert "earthworms" not in found  # one cell alone has this item: nobody searches for it


def test_a_question_is_refused_only_after_the_other_cells_of_the_row_were_read(
    birds: tuple[dict[str, list[Question]], Database],
) -> None:
    made, database = birds
    empty = [
        question
        for question in everything(made)
        if question.task_type == "unanswerable"
        and (database.query(question.statements[0]).hint or "").startswith("empty here")
    ]
    assert empty
    for question in empty:
        first, then = question.statements
        assert then == suggested_statements(database.query(first).hint)[0]
        assert any(database.query(then).records[0])


def test_one_of_two_conditions_fails_at_first_and_the_hint_says_which_statement_answers(
    birds: tuple[dict[str, list[Question]], Database],
) -> None:
    made, database = birds
    failing = [q for q in everything(made) if q.task_type == "two_conditions" and len(q.statements) > 1]
    assert failing
    for question in failing:
        first, then = question.statements
        answer = database.query(first)
        assert " AND " in first and not answer.records
        assert then in suggested_statements(answer.hint) or "LIKE" in then
        assert database.query(then).records


def test_what_is_said_beside_a_question_is_about_the_asked_row_and_no_condition_of_a_statement(
    birds: tuple[dict[str, list[Question]], Database],
) -> None:
    made, database = birds
    own = tomllib.loads(_BIRDS)["tables"]["bird"]["columns"]["food"]["asides"]
    said = 0
    for split, questions in made.items():
        for question in questions:
            assert not any(question.question.startswith(way.split("{")[0]) for way in _others(own, split))
            for way in half(own, held_out=split == "test"):
                before, after = way.removesuffix("{question}").split("{value}")
                if match := re.match(f"{re.escape(before)}(\\w+){re.escape(after)}", question.question):
                    said += 1
                    food = match[1].removesuffix("kins")
                    assert not any(food in sql for sql in question.statements)
                    name = re.findall("'([^']+)'", question.statements[-1])[-1]
                    eaten = database.query(f"SELECT food FROM bird WHERE bird = '{name}'").records[0][0]
                    assert food in str(eaten)
    assert said > 5


def _others(ways: list[str], split: str) -> list[str]:
    return [way for way in ways if way not in half(ways, held_out=split == "test")]
