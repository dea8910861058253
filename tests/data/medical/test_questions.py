"""Questions made from a database: each can be answered by its gold SQL, and no two splits share an entity."""

from __future__ import annotations

import asyncio
import lzma
import os
import re
import sqlite3
import string
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import get_args

import pytest

from sql_agent.cli.data import main
from sql_agent.config.settings import load_settings
from sql_agent.data.medical import prepare
from sql_agent.data.medical.phrasing import HELD_OUT, Wording, wording
from sql_agent.data.medical.questions.catalog import Catalog, read_catalog
from sql_agent.data.medical.questions.draft import TaskType
from sql_agent.data.medical.questions.generate import count_by_type, make_questions
from sql_agent.data.medical.sample_database import build_database
from sql_agent.data.medical.sample_facts import SEPARATORS, load_facts
from sql_agent.data.medical.schema import NAME_COLUMNS, SCHEMA
from sql_agent.data.medical.splits import SHARES
from sql_agent.data.medical.task import TASK
from sql_agent.data.medical.verify import verify
from sql_agent.data.question_files import load_questions
from sql_agent.database import open_database
from sql_agent.errors import ConfigError, DatabaseFileError, DataError
from sql_agent.reward import JudgeCase
from sql_agent.reward.judges.facts import FactsJudge
from sql_agent.schemas import Lang, QueryCall, QueryLimits, Question

REAL = Path(__file__).parents[4] / "shared/data/medical_zh.db.xz"
TASK_TYPES = get_args(TaskType)
# What the agent sees of a result unless a user sets more.
AGENT_LIMITS = QueryLimits(max_rows=20, max_chars=1500)

Made = dict[str, list[Question]]


def questions_folder(tmp: Path, lang: Lang, name: str) -> tuple[Path, Path]:
    database, folder = tmp / f"{name}.db", tmp / name
    build_database(load_facts(), lang, database)
    assert main(["questions", "--db", str(database), "--out", str(folder)]) == 0
    return database, folder


@pytest.fixture(scope="module", params=["en", "zh"])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    """The sample database of one language and its questions as the command line writes them."""
    database, folder = questions_folder(tmp_path_factory.mktemp("sample"), request.param, "sample")
    return database, {split: load_questions(folder / f"{split}.parquet") for split in SHARES}


def test_a_search_never_counts_what_says_the_opposite(sample: tuple[Path, Made]) -> None:
    path, made = sample
    searches = [q for split in made.values() for q in split if q.task_type in {"aggregate", "keyword_search"}]
    assert searches
    with sqlite3.connect(path) as connection:
        for question in searches:
            (keyword,) = re.findall(r"LIKE '%((?:[^']|'')+)%'", question.sql or "")
            for opposite in (f"非{keyword}", f"不{keyword}", f"non-{keyword}", f"not {keyword}", f"no {keyword}"):
                sql = (question.sql or "").replace(f"%{keyword}%", f"%{opposite}%")
                rows = connection.execute(sql).fetchall()
                assert rows in ([], [(0,)]), f"{question.question!r} also finds {opposite!r}"


def test_the_reference_answer_itself_earns_full_marks(sample: tuple[Path, Made]) -> None:
    path, made = sample
    judge = FactsJudge(TASK.words)
    with open_database(path, SCHEMA, AGENT_LIMITS) as database:
        for question in (q for split in made.values() for q in split):
            call = QueryCall(sql=question.sql or "", answer=database.query(question.sql or ""), seconds=0.0)
            verdict = asyncio.run(judge.grade(JudgeCase(question=question, answer=question.answer, calls=(call,))))
            if not call.answer.truncated:
                assert verdict.score >= 0.97, f"{question.question!r}: {question.answer!r} {verdict}"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not REAL.exists():
        pytest.skip("the large development database is not beside this checkout")
    path = tmp_path_factory.mktemp("real") / "medical_zh.db"
    path.write_bytes(lzma.decompress(REAL.read_bytes()))
    return path


def everything(made: Made) -> Iterator[Question]:
    return (question for questions in made.values() for question in questions)


def entities(question: Question, catalog: Catalog) -> set[tuple[str, str]]:
    """All rows that the SQL names or the evidence holds; an absent name counts like a row."""
    names = {(item.table, item.row_id): "" for item in question.evidence}
    found = {row.key for rows in catalog.rows.values() for row in rows if (row.table, row.row_id) in names}
    literals = [text.replace("''", "'").strip("%") for text in re.findall(r"'((?:[^']|'')*)'", question.sql or "")]
    found |= {(table, text) for text in literals for table in NAME_COLUMNS if catalog.find(table, text)}
    if question.task_type == "unanswerable":
        found.add(("asked", literals[-1]))
    return found


def assert_disjoint(made: Made, catalog: Catalog) -> None:
    by_split = {
        split: set().union(*(entities(question, catalog) for question in questions))
        for split, questions in made.items()
    }
    train, val, test = by_split.values()
    assert not train & val
    assert not train & test
    assert not val & test


def test_each_split_of_the_sample_has_each_type(sample: tuple[Path, Made]) -> None:
    _, made = sample
    for questions in made.values():
        assert set(count_by_type(questions)) == set(TASK_TYPES)
    assert len(made["train"]) >= 900
    assert len(made["val"]) >= 100
    assert len(made["test"]) >= 200


def test_no_two_splits_share_an_entity(sample: tuple[Path, Made]) -> None:
    database, made = sample
    assert_disjoint(made, read_catalog(database))


def test_ids_and_texts_come_once(sample: tuple[Path, Made]) -> None:
    _, made = sample
    questions = list(everything(made))
    assert len({question.id for question in questions}) == len(questions)
    assert len({question.question for question in questions}) == len(questions)
    assert all(re.fullmatch(rf"{q.lang}-{q.task_type}-\d{{6}}", q.id) for q in questions)


def test_gold_sql_answers_within_the_limits_of_the_agent(sample: tuple[Path, Made]) -> None:
    path, made = sample
    verify(everything(made), read_catalog(path), path, AGENT_LIMITS)
    with open_database(path, SCHEMA, AGENT_LIMITS) as database:
        for question in everything(made):
            answer = database.query(question.sql or "")
            cells = [str(cell) for row in answer.records for cell in row if cell is not None]
            if question.task_type == "unanswerable":
                assert not cells
            elif question.task_type == "aggregate":
                assert cells == [question.answer]
            else:
                assert all(any(item.quote in cell for cell in cells) for item in question.evidence), question.id


def test_quotes_are_substrings_of_the_field(sample: tuple[Path, Made]) -> None:
    path, made = sample
    connection = sqlite3.connect(path)
    for question in everything(made):
        assert bool(question.evidence) == (question.task_type != "unanswerable")
        for item in question.evidence:
            query = f"SELECT {item.field} FROM {item.table} WHERE id = ?"
            assert item.quote in connection.execute(query, (item.row_id,)).fetchone()[0]
    connection.close()


def test_answers_are_facts_that_the_evidence_holds(sample: tuple[Path, Made]) -> None:
    _, made = sample
    for question in everything(made):
        facts = question.answer.split(SEPARATORS[question.lang])
        assert len(facts) <= 8
        assert len(set(facts)) == len(facts)
        quotes = [item.quote for item in question.evidence]
        if question.task_type == "aggregate":
            assert question.answer == str(len(quotes))
        elif question.task_type == "comparison":
            assert all(any(quote in fact for fact in facts) for quote in quotes)
        elif question.task_type == "unanswerable":
            assert facts == [wording(question.lang).no_answer]
        else:
            assert facts == quotes


def test_a_wrong_question_is_an_error_not_dropped(sample: tuple[Path, Made]) -> None:
    path, made = sample
    catalog = read_catalog(path)
    good = next(question for question in made["train"] if question.task_type == "drug_field")
    quote = good.evidence[0].model_copy(update={"quote": "not there"})
    for change in (
        {"sql": "SELECT nothing FROM drugs_info"},
        {"sql": "SELECT med_name FROM drugs_info WHERE id < 0"},
        {"answer": "something else"},
        {"evidence": (quote,)},
        {"evidence": ()},
        {"task_type": "unanswerable"},
        {"task_type": "aggregate"},
        {"task_type": "keyword_search", "answer": "something else"},
    ):
        with pytest.raises(DataError, match=good.id):
            verify([good.model_copy(update=change)], catalog, path)
    verify([good], catalog, path)


@pytest.mark.slow
def test_the_same_database_gives_the_same_files(tmp_path: Path) -> None:
    _, one = questions_folder(tmp_path, "en", "one")
    _, two = questions_folder(tmp_path, "en", "two")
    names = sorted(path.name for path in one.iterdir())
    assert names == ["qa_dataset.jsonl", "test.parquet", "train.parquet", "val.parquet"]
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)
    catalog = read_catalog(tmp_path / "one.db")
    assert make_questions(catalog, seed=0, per_type=20) != make_questions(catalog, seed=1, per_type=20)


def test_the_jsonl_file_holds_all_splits(tmp_path: Path) -> None:
    _, folder = questions_folder(tmp_path, "zh", "zh")
    parts = [question for split in SHARES for question in load_questions(folder / f"{split}.parquet")]
    assert load_questions(folder / "qa_dataset.jsonl") == parts


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_type_has_enough_phrasings_that_fit(lang: Lang) -> None:
    words: Wording = wording(lang)
    needs = {
        "drug_field": {"name", "field"},
        "disease_field": {"name", "field"},
        "comparison": {"name", "other", "field"},
        "keyword_search": {"rows", "keyword", "field"},
        "aggregate": {"rows", "keyword", "field"},
        "aggregate_among": {"names", "keyword", "field"},
        "disease_to_drugs": {"name"},
        "treatment_to_drugs": {"name"},
    }
    assert set(words.phrasings) == set(needs)
    for pool, phrasings in words.phrasings.items():
        assert len(set(phrasings)) - HELD_OUT >= 8, pool
        for phrasing in phrasings:
            used = {name for _, name, _, _ in string.Formatter().parse(phrasing) if name}
            assert needs[pool] <= used <= needs[pool] | {"rows"}, phrasing


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_prompt_tells_the_model_to_say_what_the_answer_is(lang: Lang) -> None:
    prompt = (Path(__file__).parents[3] / f"sql_agent/data/medical/prompts/agent.{lang}.txt").read_text(
        encoding="utf-8"
    )
    assert wording(lang).no_answer in prompt


def tiny(drugs: list[dict[str, object]], diseases: list[dict[str, object]]) -> Catalog:
    return Catalog({"drugs_info": drugs, "disease": diseases})


def test_search_in_memory_is_what_like_does() -> None:
    names = ["Ibuprofen", "Ibuprofen Plus", "É", "ibu", None]
    catalog = tiny(
        [{"id": n, "med_name": f"drug {n}", "indication": text} for n, text in enumerate(names)],
        [{"id": 1, "disease_name": "Gout"}],
    )
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (id, text)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", enumerate(names))
    for text in ("ibu", "IBUPROFEN", "é", "É", "plus", "x"):
        expected = [row[0] for row in connection.execute("SELECT id FROM t WHERE text LIKE ?", (f"%{text}%",))]
        assert [row.row_id for row in catalog.rows_with("drugs_info", "indication", text)] == expected
    connection.close()


def test_ambiguous_and_awkward_names_are_not_asked() -> None:
    names = ["Aspirin", "aspirin", "A;B", "50% glucose", "O'Neil's balm", "x"]
    catalog = tiny([{"id": n, "med_name": name} for n, name in enumerate(names)], [{"id": 1, "disease_name": "Gout"}])
    assert [row.name for row in catalog.askable("drugs_info")] == ["O'Neil's balm"]


def test_a_missing_database_ends_with_a_message_and_code_2(tmp_path: Path) -> None:

    command = [sys.executable, "-m", "sql_agent", "data", "questions", "--db", str(tmp_path / "none.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "no database at" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Has a run with these settings make what it lacks, in an empty project; returns what the user hears."""
    monkeypatch.setattr(prepare, "VAR", tmp_path)

    def ensure(*overrides: str) -> list[str]:
        said: list[str] = []
        prepare.ensure_sample(load_settings(overrides), said.append)
        return said

    return ensure


def test_a_run_without_a_database_of_its_own_makes_the_sample_once(heard: Callable[..., list[str]]) -> None:
    said = heard("lang=zh")
    assert "77 drugs" in said[0] and "questions about it" in said[1]
    settings = load_settings(["lang=zh"])
    with TASK.open_database(settings) as database:
        assert database.query("SELECT COUNT(*) FROM drugs_info").records == ((77,),)
    assert {q.lang for q in load_questions(TASK.question_file(settings, "train"))} == {"zh"}
    assert heard("lang=zh") == [], "what is there stays as it is"


def test_only_what_a_run_uses_is_made(heard: Callable[..., list[str]], tmp_path: Path) -> None:
    own = tmp_path / "own.parquet"
    assert len(heard(f"data.train_file={own}", f"data.val_file={own}")) == 1, "the database alone"
    assert heard(f"database.path={tmp_path / 'mine.db'}") == []


def test_questions_about_another_database_are_never_taken_for_those_of_the_users(
    heard: Callable[..., list[str]], tmp_path: Path
) -> None:
    heard()
    with pytest.raises(ConfigError, match=r"no train questions of the task medical at .*questions_mine") as error:
        TASK.question_file(load_settings([f"database.path={tmp_path / 'mine.db'}"]), "train")
    assert "questions --db" in (error.value.hint or "")


@pytest.mark.slow
def test_a_real_noisy_database(real: Path) -> None:
    catalog = read_catalog(real)
    assert catalog.lang == "zh"
    made = make_questions(catalog, per_type=60)
    for questions in made.values():
        assert set(count_by_type(questions)) == set(TASK_TYPES)
    verify(everything(made), catalog, real, AGENT_LIMITS)
    assert_disjoint(made, catalog)


@pytest.mark.skipif("TEST_SCALE" not in os.environ, reason="takes half a minute: set TEST_SCALE=1")
def test_five_thousand_questions_in_a_minute(real: Path, tmp_path: Path) -> None:
    start = monotonic()
    assert main(["questions", "--db", str(real), "--out", str(tmp_path)]) == 0
    assert monotonic() - start < 60
    assert len(load_questions(tmp_path / "qa_dataset.jsonl")) >= 5000


def database_of(path: Path, drugs: str, diseases: str) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(f"CREATE TABLE drugs_info ({drugs}); CREATE TABLE disease ({diseases})")
    connection.execute("INSERT INTO drugs_info VALUES ('1', 'Aspirin')")
    connection.execute("INSERT INTO disease VALUES ('1', 'Gout')")
    connection.commit()
    connection.close()
    return path


def test_a_database_with_names_only_gives_no_questions(tmp_path: Path) -> None:
    path = database_of(tmp_path / "bare.db", "id INTEGER PRIMARY KEY, med_name TEXT", "id INTEGER, disease_name TEXT")
    assert list(everything(make_questions(read_catalog(path)))) == []


def test_ids_that_are_not_numbers_are_an_error(tmp_path: Path) -> None:
    path = database_of(tmp_path / "ids.db", "id TEXT, med_name TEXT", "id INTEGER, disease_name TEXT")
    with pytest.raises(DatabaseFileError, match=r"drugs_info\.id"):
        read_catalog(path)
