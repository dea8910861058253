"""The page of a conversation in a real browser, and who may ask its server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.browser import Tab, needs_chromium, open_browser
from tests.support.chat_page import ANSWER, FORM_SQL, QUESTION, TOKEN, chat_page
from tests.support.processes import lines
from tests.support.question_server import QuestionServer, answering
from tests.support.small_database import make_database

WIDE_SQL = "SELECT med_name, form, indication, component, status FROM drugs_info LIMIT 20"
MARKUP = "<img src=x onerror='document.title=\"owned\"'>"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_database(tmp_path_factory.mktemp("chat") / "medical.db", rows=40)


@pytest.fixture(scope="module")
def server() -> Iterator[QuestionServer]:
    with answering() as server:
        server.knows["new", QUESTION] = FORM_SQL, ANSWER
        server.knows["old", QUESTION] = WIDE_SQL, f"capsule or {MARKUP}"
        yield server


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.fixture
def url(server: QuestionServer, database: Path, kept: Path) -> Iterator[str]:
    server.delay_s, server.failing[QUESTION] = 0.0, 0
    with chat_page(server.url, database, kept, names=["new"], known=["new", "old"]) as url:
        yield url


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with open_browser(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture
def tab(browser: Tab, url: str) -> Iterator[Tab]:
    browser.resize(1280, 900)
    browser.dark(False)
    browser.open(f"{url}#token={TOKEN}")
    yield browser
    assert browser.errors == [], "nothing may fail in the page"
    assert browser.value("document.title") == "sql-agent chat", "what a model writes is text"


def ask(tab: Tab, text: str) -> None:
    tab.value("document.getElementById('question').focus()")
    tab.write(text)
    tab.click("#send")


def test_without_the_token_under_another_name_or_from_another_site_nothing_is_answered(url: str) -> None:
    question = {"model": "new", "question": QUESTION}
    known = {"Authorization": f"Bearer {TOKEN}"}
    assert httpx.get(url).status_code == 200, "the page holds nothing"
    for given in ("", "Bearer wrong", "Bearer ü", TOKEN[:-1]):
        headers = [(b"Authorization", given.encode())]
        assert httpx.get(f"{url}state", headers=headers).status_code == 401
        assert httpx.post(f"{url}ask", json=question, headers=headers).status_code == 401
    assert httpx.get(url, headers={"Host": "evil.example:80"}).status_code == 403
    assert httpx.post(f"{url}ask", json=question, headers=known | {"Origin": "http://evil.example"}).status_code == 403
    assert httpx.get(f"{url}state", headers=known).json()["models"] == ["new", "old"]
    for body in ({"model": "/etc", "question": "?"}, {"model": "new"}, ["new"]):
        refused = httpx.post(f"{url}ask", json=body, headers=known)
        assert refused.status_code == 400 and refused.json()["message"]


@needs_chromium
def test_a_question_shows_each_query_its_rows_and_the_answer_with_its_source(tab: Tab, server: QuestionServer) -> None:
    assert tab.value("location.hash") == "", "the token leaves the address"
    assert "not medical advice" in tab.text("#disclaimer")
    server.delay_s = 0.4
    tab.click(".examples button")
    tab.wait("document.querySelector('.query table')")
    assert tab.count(".answer") == 0, "rows are shown before the answer is there"
    assert "SELECT med_name" in tab.text(".query pre")
    assert tab.text("#stop") == "Stop"
    tab.wait("document.querySelector('.answer')")
    assert tab.text(".answer mark") == tab.text(".query tbody mark") == ANSWER
    assert "in the answer" in tab.text(".query.source summary")
    assert "Query 1, row 1, form" in tab.text(".sources")
    tab.click(".sources button")
    tab.wait("document.querySelector('tr.flash')")


@needs_chromium
def test_what_a_model_thinks_is_folded_away(tab: Tab, server: QuestionServer) -> None:
    server.thoughts[QUESTION] = f"The question is about the form. {MARKUP}"
    ask(tab, QUESTION)
    tab.wait("document.querySelector('.answer')")
    server.thoughts.clear()
    assert tab.value("document.querySelector('.thoughts').open") is False
    tab.click(".thoughts summary")
    assert tab.text(".thoughts summary") == "2 thoughts", "before the query and before the answer"
    assert f"about the form. {MARKUP}" in tab.text(".thoughts pre")


@needs_chromium
def test_two_models_answer_side_by_side_are_rated_and_corrected(tab: Tab, kept: Path) -> None:
    tab.choose("#beside", "old")
    ask(tab, QUESTION)
    tab.wait("document.querySelectorAll('.rating').length === 2")
    assert [tab.text(f".reply:nth-child({n}) h3") for n in (1, 2)] == ["new", "old"]
    tops = tab.value("[...document.querySelectorAll('.reply')].map(r => r.getBoundingClientRect().top)")
    assert tops[0] == tops[1]
    assert MARKUP in tab.text(".reply:nth-child(2) .answer")
    tab.click(".reply:nth-child(1) .up")
    tab.wait("document.querySelector('.reply:nth-child(1) .up[aria-pressed=true]')")
    assert [(row["answer"], row["rating"], row["model"]) for row in lines(kept / "questions.jsonl")] == [
        (ANSWER, "up", "new")
    ]
    tab.click(".reply:nth-child(2) .correct")
    tab.wait("document.activeElement.tagName === 'TEXTAREA'")
    tab.value("document.activeElement.select()")
    tab.write("film-coated tablet")
    tab.click(".reply:nth-child(2) .rating [type=submit]")
    tab.wait("document.querySelector('.reply:nth-child(2) .correct[aria-pressed=true]')")
    assert [(row["answer"], row["rating"], row["model"]) for row in lines(kept / "questions.jsonl")] == [
        ("film-coated tablet", "corrected", "old")
    ]
    tab.click(".reply:nth-child(1) .up")
    tab.wait("document.querySelector('.reply:nth-child(1) .up[aria-pressed=false]')")
    assert lines(kept / "ratings.jsonl")[-1]["rating"] == "withdrawn"


@needs_chromium
def test_a_person_corrects_the_sql_and_keeps_the_answer_from_its_rows(tab: Tab, kept: Path) -> None:
    ask(tab, "Who?")
    tab.wait("document.querySelector('.write')")
    tab.click(".write")
    tab.wait("document.activeElement.tagName === 'TEXTAREA'")
    tab.value("document.activeElement.select()")
    tab.write("SELECT form FROM drugs_info WHERE med_name = 'Drug 4'")
    tab.click(".statement [type=submit]")
    tab.wait("document.querySelector('.query summary b')?.textContent === 'yours'")
    assert tab.value("document.querySelector('.rating textarea').value") == ANSWER, "the cells of the only column"
    tab.click(".rating [type=submit]")
    tab.wait("document.querySelector('.correct[aria-pressed=true]')")
    (row,) = lines(kept / "questions.jsonl")
    assert (row["answer"], row["sql"]) == (ANSWER, "SELECT form FROM drugs_info WHERE med_name = 'Drug 4'")


@needs_chromium
def test_a_tool_call_that_cannot_be_read_is_no_answer(tab: Tab, server: QuestionServer) -> None:
    server.knows["new", "Broken?"] = "", '<tool_call>{"name": "query_database_by_sql", "argu'
    ask(tab, "Broken?")
    tab.wait("document.querySelector('.answer')")
    assert tab.text(".answer") == "(none)"
    assert "wrote a tool call that cannot be read" in tab.text(".reply")
    assert '"argu' not in tab.text(".reply")
    tab.click(".correct")
    assert tab.value("document.querySelector('.rating textarea').value") == ""


@needs_chromium
def test_a_follow_up_is_asked_together_with_its_question(tab: Tab, server: QuestionServer) -> None:
    server.knows["new", f"{QUESTION}\nAnd Drug 5?"] = FORM_SQL.replace("4", "5"), "capsule"
    ask(tab, QUESTION)
    tab.wait("document.querySelector('.answer') && document.querySelector('#send')")
    tab.click(".follow")
    assert QUESTION in tab.text("#ask")
    ask(tab, "And Drug 5?")
    tab.wait("document.querySelector('.turn:nth-child(2) .answer')")
    assert "Drug 5" in tab.text(".turn:nth-child(2) .query .sql")


@needs_chromium
def test_the_database_and_its_tables_are_shown(tab: Tab, database: Path) -> None:
    assert f"Database {database} · 2 tables" in tab.text("#database")
    tab.click("#database summary")
    assert "med_name" in tab.text("#database table")


@needs_chromium
def test_what_fails_is_a_line_and_a_question_can_be_stopped(tab: Tab, server: QuestionServer) -> None:
    server.failing[QUESTION] = 1
    ask(tab, QUESTION)
    tab.wait("document.querySelector('.reply .bad')")
    assert "the model's server failed" in tab.text(".reply .bad")
    server.delay_s = 5.0
    ask(tab, "Who?")
    tab.wait("document.querySelector('#stop')")
    tab.press("Escape")
    tab.wait("document.querySelector('#send')")
    assert tab.text(".turn:nth-child(2) .bad") == "Stopped."
    server.delay_s = 0.0
    ask(tab, "Who?")
    tab.wait("document.querySelector('.turn:nth-child(3) .answer')")
    assert "No row contains a text of the answer." in tab.text(".turn:nth-child(3)")


@needs_chromium
def test_the_page_speaks_chinese_keeps_the_conversation_and_fits_a_phone(tab: Tab) -> None:
    tab.choose("#beside", "old")
    ask(tab, QUESTION)
    tab.wait("document.querySelectorAll('.rating').length === 2")
    tab.click("#language")
    assert "正确" in tab.text(".rating") and "查询 1" in tab.text(".query summary")
    assert tab.text("#disclaimer") == "仅供检索研究，不构成医疗建议。"
    tab.click("#language")
    assert "not medical advice" in tab.text("#disclaimer")
    tab.resize(390, 844)
    assert tab.value("document.documentElement.scrollWidth") <= 390
    lefts = tab.value("[...document.querySelectorAll('.reply')].map(r => r.getBoundingClientRect().left)")
    assert lefts[0] == lefts[1], "one below the other"
    tab.dark(True)
    assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"


@needs_chromium
def test_a_tab_without_the_token_asks_for_it(browser: Tab, url: str) -> None:
    browser.open(url)
    browser.value("sessionStorage.clear()")
    browser.open(url)
    browser.wait("document.querySelector('#token')")
    browser.write(TOKEN)
    browser.click("#conversation button")
    browser.wait("document.querySelector('#question')")
    assert browser.text(".examples") == QUESTION
