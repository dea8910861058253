"""`sql-agent init` with a teacher: what the model proposes is used where it fits, and the rest is counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sql_agent.__main__ import main
from sql_agent.tasks.described.description import Description, read_description
from tests.support.judge_server import Server, serving_as_teacher
from tests.tasks.described.databases import make_shop

ASK = ["What goes into {name}?", "{name}: made of?", "Of what is {name} made?", "Made from, {name}?", "{name}, stuff?"]
FIND = ["What do you have in {value}?", "Anything made of {value}?"]
CONFIRM = ["Is {name} made of {value}?"]
NOTHING = {"label": "", "plural": "", "columns": []}


def column(name: str, **given: Any) -> dict[str, Any]:
    empty = {"label": name.lower(), "plural": "", "unit": "", "ask": [], "find": [], "confirm": []}
    return {"column": name, **empty, **given}


PRODUCTS = {
    "label": "article",
    "plural": "articles",
    "columns": [
        column("materials", label="material", plural="materials", ask=ASK, find=FIND, confirm=CONFIRM),
        column("price", unit="EUR", ask=["How much is {name}?", "How much is it?", "", "{name} 多少钱？"], find=FIND),
        column("weight_g", label="", plural="weights", ask=["What does {name} weigh in {unit}?"]),
        column("colour", ask=["What colour is {name}?"]),
    ],
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving_as_teacher(monkeypatch) as server:
        server.plays = lambda prompt: json.dumps(PRODUCTS if table_in(prompt) == "products" else NOTHING)
        yield server


def table_in(prompt: str) -> str:
    line = next(line for line in prompt.splitlines() if line.startswith("table: "))
    return str(json.loads(line.removeprefix("table: "))["table"])


def shop(folder: Path) -> tuple[int, Description | None]:
    database, out = folder / "shop.db", folder / "shop.toml"
    if not database.exists():
        make_shop(database)
    code = main(["init", str(database), "--out", str(out)])
    return code, read_description(out) if out.exists() else None


def test_what_fits_is_written_and_the_rest_is_counted(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = shop(tmp_path)
    assert code == 0 and found is not None
    table = found.tables["products"]
    materials, price = table.columns["materials"], table.columns["price"]
    assert (table.label, table.plural) == ("article", "articles")
    assert (materials.ask, materials.find, materials.confirm) == (tuple(ASK), tuple(FIND), tuple(CONFIRM))
    assert (price.unit, price.ask, price.find) == ("EUR", ("How much is {name}?",), ())
    weight = table.columns["weight_g"]
    assert (weight.label, weight.plural, weight.ask[0]) == ("weight", "", "What is the {label} of {name}?")
    printed = " ".join(capsys.readouterr().out.split())
    assert "m proposes labels and wordings; it sees up to five short values of each column" in printed
    for reason in ("unknown column 1", "wrong slots 2", "wrong language 1", "`find` of the kind number 2"):
        assert reason in printed
    assert f"Cost: {len(found.tables)} requests" in printed


def test_the_teacher_sees_five_short_values_of_a_column_and_no_id(server: Server, tmp_path: Path) -> None:
    shop(tmp_path)
    prompts = {table_in(p): p for p in (str(request["messages"][0]["content"]) for request in server.requests)}
    lines = [json.loads(line) for line in prompts["products"].splitlines() if line.startswith('{"column"')]
    assert [line["column"] for line in lines][:2] == ["productName", "category"]
    assert all(0 < len(line["values"]) <= 5 for line in lines)


def test_an_interrupted_command_asks_only_for_the_rest_and_a_refused_table_keeps_its_guesses(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plays = server.plays
    assert plays is not None
    monkeypatch.setenv("SQL_AGENT_JUDGE__CONCURRENCY", "1")
    server.plays = lambda prompt: plays(prompt) if len(server.requests) < 4 else 401
    assert main(["init", str(make_shop(tmp_path / "shop.db")), "--out", str(tmp_path / "shop.toml")]) == 2
    assert "the judge m failed" in capsys.readouterr().err
    assert not (tmp_path / "shop.toml").exists()
    answered, refusal = len(server.requests) - 1, {"error": {"message": "rejected by the content management policy"}}
    server.plays = lambda prompt: refusal if table_in(prompt) == "order_items" else plays(prompt)
    code, found = shop(tmp_path)
    assert code == 0 and found is not None
    assert found.tables["products"].label == "article"
    assert len(server.requests) == answered + 1 + len(found.tables) - answered
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 requests failed; their columns keep the guesses: order_items 1: the judge m refused" in printed


def test_without_a_teacher_the_plain_guesses_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEACHER_MODEL", raising=False)
    code, found = shop(tmp_path)
    assert code == 0 and found is not None and found.tables["products"].label == "product"
    assert "No TEACHER_MODEL is set: labels and wordings are guesses" in capsys.readouterr().out
