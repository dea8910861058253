"""What the medical task tells the model, and what it measures."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest

from sql_agent.config.settings import load_settings
from sql_agent.database import open_database
from sql_agent.rollouts.metrics import refusals
from sql_agent.schemas import Lang, Outcome, QueryAnswer, Question, RolloutRecord
from sql_agent.tasks.medical.medical_task import TASK
from sql_agent.tasks.medical.tables import SCHEMA, aliases_in
from tests.support.small_database import make_database


@pytest.mark.parametrize("lang", get_args(Lang))
def test_the_prompts_name_the_real_columns_and_the_purpose(lang: Lang, tmp_path: Path) -> None:
    with open_database(make_database(tmp_path / "medical.db"), SCHEMA) as database:
        assert "one read-only SQLite SELECT" in TASK.describe_tool(database)
        texts = [told(lang, database, load_settings()) for told in (TASK.instructions, TASK.describe)]
    for text in texts:
        assert ("drugs_info(id, med_name," if lang == "en" else "drugs_info(id 编号, med_name 药物名称,") in text
        assert ("not medical advice" if lang == "en" else "不构成医疗建议") in text
        assert TASK.words[lang].refusals[0] in text
        assert "{" not in text


@pytest.mark.parametrize("lang", get_args(Lang))
def test_refusals_in_the_words_of_the_prompt_are_counted_by_whether_they_are_right(lang: Lang) -> None:
    refusal = TASK.words[lang].refusals[0]

    def record(reference: str, answer: str) -> RolloutRecord:
        question = Question(id="q", question="?", answer=reference, lang=lang)
        return RolloutRecord(question=question, answer=answer, outcome=Outcome.ANSWERED)

    answerable = [record("oral", answer) for answer in (refusal, "oral", f"{refusal} Or oral.", "")]
    unanswerable = [record(refusal, answer) for answer in (refusal, "oral")]
    measured = refusals([*answerable, *unanswerable], TASK.words)
    assert measured == {"agent/refused": 2 / 6, "refused_answerable": 0.25, "right_refusals": 0.5}
    assert refusals(answerable[:1], TASK.words) == {"agent/refused": 1.0, "refused_answerable": 1.0}
    assert refusals([], TASK.words) == {}


def test_the_prompts_show_the_values_of_a_column_that_has_only_a_few(tmp_path: Path) -> None:
    columns: dict[str, Callable[[int], str | None]] = {
        "med_approval": lambda n: "Withdrawn" if n % 5 == 0 else "Authorised",
        "status": lambda n: ("Rx", "", None)[n % 3],
        "company_name": lambda n: f"firm {n % 13}",  # too many
        "pack": lambda _: "a" * 31,  # too long
        "storage": lambda n: ("cool", "in a\nfridge")[n % 2],  # two lines
        "form": lambda n: ("tablet|pill", " syrup")[n % 2],  # not told apart
        "reviewer": lambda n: ("Ann", "Bo")[n % 2],  # not described, perhaps private
        "period": lambda n: "36 months" if n < 4 else None,  # too few cells
    }
    path = tmp_path / "medical.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE drugs_info (id INTEGER PRIMARY KEY, med_name, {', '.join(columns)})")
        connection.execute("CREATE TABLE disease (id INTEGER PRIMARY KEY, disease_name TEXT)")
        connection.execute("INSERT INTO disease VALUES (1, 'asthma')")
        rows = [(f"drug {n}", *(cell(n) for cell in columns.values())) for n in range(60)]
        marks = ", ".join("?" for _ in rows[0])
        connection.executemany(f"INSERT INTO drugs_info (med_name, {', '.join(columns)}) VALUES ({marks})", rows)
    with open_database(path, SCHEMA) as database:
        for told in (TASK.instructions, TASK.describe):
            assert (
                "drugs_info(id, med_name, med_approval Authorised|Withdrawn, status Rx, company_name, pack, storage, "
                "form, reviewer, period)\ndisease(id, disease_name)" in told("en", database, load_settings())
            )


def test_rollouts_that_start_together_read_the_values_of_columns_once(tmp_path: Path) -> None:
    with open_database(make_database(tmp_path / "medical.db"), SCHEMA) as database:
        asked: list[str] = []
        query = database.query

        def slow(sql: str) -> QueryAnswer:
            asked.append(sql)
            time.sleep(0.01)
            return query(sql)

        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(8) as threads:
            patch.setattr(database, "query", slow)
            told = set(threads.map(lambda _: TASK.instructions("en", database, load_settings()), range(8)))
    assert len(told) == 1
    assert len(asked) == len(set(asked)) > 0


@pytest.mark.parametrize(
    ("text", "aliases"),
    [
        (
            "Also called Gasser's disease, HUS.\nHemolytic uremic syndrome (HUS) is rare.",
            ["Gasser's disease", "HUS", "HUS"],
        ),
        ("Alcohol, also known as ethanol, is found in beverages like beer, wine and spirits.", ["ethanol"]),
        ("The liver swells, also called hepatomegaly. The lower jaw is also called mandible.", ["hepatomegaly"]),
        ("Powders are sold as tablets, capsules or tea.", []),
        ("Also called Advil. Brand names: Motrin, Nurofen.", ["Advil", "Motrin", "Nurofen"]),
        ("Ibuprofen is a nonsteroidal anti-inflammatory drug (NSAID).", []),
        ("阿司匹林，又名乙酰水杨酸。", ["乙酰水杨酸"]),
    ],
)
def test_a_text_tells_other_names_of_its_row(text: str, aliases: list[str]) -> None:
    assert list(aliases_in(text)) == aliases
