"""The sample on a MariaDB server: the same questions, answers and rewards as in the SQLite file."""

from __future__ import annotations

import asyncio
import re
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import pytest

from sql_agent.cli.data import main
from sql_agent.config.settings import load_settings
from sql_agent.database import Database, open_database, parse_source
from sql_agent.database.provenance import judge_case
from sql_agent.reward import score
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.reward.judges.items import Reader
from sql_agent.schemas import Lang, QueryCall, Question
from sql_agent.tasks.medical.medical_task import TASK, make_question_files
from sql_agent.tasks.medical.sample import build_database, load_facts
from sql_agent.tasks.medical.tables import SCHEMA
from tests.support.mariadb import SERVER, administrator, skip_without_server

pytestmark = pytest.mark.slow  # loads the sample of both languages into a server, and makes questions about each

SCRIPT = Path(__file__).parents[3] / "scripts" / "load_mysql.sh"


@pytest.fixture(scope="module", params=get_args(Lang))
def lang(request: pytest.FixtureRequest) -> Lang:
    found: Lang = request.param
    return found


@pytest.fixture(scope="module")
def file(lang: Lang, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / f"sample_{lang}.db"
    build_database(load_facts(), lang, path)
    return path


@pytest.fixture(scope="module")
def reader_url(file: Path) -> Iterator[str]:
    """The URL of a reader that the script made."""
    skip_without_server()
    name = f"sql_agent_test_{uuid.uuid4().hex[:12]}"
    user = f"r_{name[-12:]}"
    command = [str(SCRIPT), f"{SERVER}/{name}", "--from", str(file), "--reader", user]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert re.search(r"\d+ rows in drugs_info, \d+ rows in disease", done.stdout)
        yield done.stdout.rpartition("DATABASE_URL=")[2].strip()
    finally:
        with closing(administrator()) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {name}")
            cursor.execute(f"DROP USER IF EXISTS '{user}'@'%'")


def test_tables_that_are_there_are_replaced_only_when_told(
    reader_url: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{SERVER}{urlsplit(reader_url).path}"
    with pytest.raises(Exception, match="has a table drugs_info already"):
        main(["load", "--db", url, "--from", str(file)])
    assert main(["load", "--db", url, "--from", str(file), "--replace"]) == 0
    assert "rows in disease" in capsys.readouterr().out


def test_questions_about_it_are_those_about_the_file_in_its_dialect_and_earn_the_same(
    reader_url: str, file: Path, lang: Lang, tmp_path: Path
) -> None:
    of_file = make_question_files(file, tmp_path / "file", lang, per_type=4)
    of_server = make_question_files(parse_source(reader_url), tmp_path / "server", lang, per_type=4)
    compared = 0
    with open_database(file, SCHEMA) as sqlite, open_database(reader_url, SCHEMA) as server:
        assert "MySQL SELECT" in TASK.instructions(lang, server, load_settings([]))
        assert "MySQL SELECT" in TASK.describe_tool(server)
        for split, questions in of_file.items():
            pairs = dict(zip((q.id for q in questions), questions, strict=True))
            assert [q.model_copy(update={"sql": None}) for q in of_server[split]] == [
                q.model_copy(update={"sql": None}) for q in questions
            ]
            for question in of_server[split]:
                compared += holds(pairs[question.id], question, sqlite, server)
    assert compared >= 0.98 * 3 * sum(map(len, of_file.values()))


def holds(ours: Question, theirs: Question, sqlite: Database, server: Database) -> int:
    """Assert that rollouts earn the same on both; return how many of three pairs found the same rows.

    They run the gold SQL, its first statement only, which may be a miss, or a statement about another row. A name in
    small letters is a miss in the file only, because = ignores case on the server.
    """
    other = ("SELECT id FROM disease WHERE id = 1",)
    assert rewarded(ours, ours.statements, server)[1] == rewarded(theirs, theirs.statements, server)[1]
    compared = 0
    pairs = [(ours.statements, theirs.statements), (ours.statements[:1], theirs.statements[:1]), (other, other)]
    for one, another in pairs:
        rows, earned = rewarded(ours, one, sqlite)
        found, paid = rewarded(theirs, another, server)
        assert rows != found or earned == paid
        compared += rows == found
    return compared


def rewarded(question: Question, statements: Sequence[str], database: Database) -> tuple[object, object]:
    """The rows of `statements`, and what a rollout earns that runs them, with a right answer and with a wrong one."""
    calls = tuple(QueryCall(sql=sql, answer=database.query(sql), seconds=0.0) for sql in statements)
    reader = Reader(TASK.words[question.lang])
    earned = []
    for answer in (question.full_answer, "no idea"):
        case = judge_case(question, answer, calls, database, TASK.schema.names, reader)
        earned.append((case.evidence_read, asyncio.run(score(case, FactsJudge(TASK.words), TASK.rule))[0]))
    return [sorted(map(str, call.answer.records)) for call in calls], earned


def test_the_prompt_lists_the_values_of_columns_as_over_the_file(reader_url: str, file: Path, lang: Lang) -> None:
    with open_database(parse_source(reader_url), SCHEMA) as server, open_database(file, SCHEMA) as opened:
        told = [TASK.instructions(lang, each, load_settings()) for each in (server, opened)]
    assert re.search(r"status [^,]*(prescription only\|over the counter|处方药\|非处方药)", told[0])
    assert told[0] == told[1].replace("SQLite", "MySQL")
