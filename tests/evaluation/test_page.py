"""The page of an evaluation shows every rollout, and markup in them does nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.config.settings import load_settings, public_dump
from sql_agent.evaluation.folder import About
from sql_agent.evaluation.measures import measure_set
from sql_agent.evaluation.results import Evaluation, report_on, write_results
from sql_agent.schemas import RolloutRecord
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.browser import needs_chromium, open_browser
from tests.support.records import record

ATTACK = "</script><img src=x onerror=\"document.title='owned'\">"


def evaluation(model: str, records: list[RolloutRecord]) -> Evaluation:
    about = About(model=model, judge="facts/3", version="0", started="now", settings=public_dump(load_settings()))
    return Evaluation(about=about, asked={"test": len(records)}, sets={"test": measure_set(records, TASK.words)})


def keyed(records: list[RolloutRecord]) -> dict[tuple[str, str], RolloutRecord]:
    return {("test", r.question.id): r for r in records}


@pytest.fixture
def pages(tmp_path: Path) -> dict[str, Path]:
    first = [record(i, float(i % 2), task_type="drug_field") for i in range(4)]
    second = [record(0, 1.0, said=f"capsule {ATTACK}"), *first[1:3], record(3, None)]
    report = report_on([evaluation("a", first), evaluation("b", second)], [keyed(first), keyed(second)], compared=True)
    return write_results(tmp_path, report, [keyed(first), keyed(second)])


def test_the_table_to_paste_is_markdown_on_whole_lines(pages: dict[str, Path]) -> None:
    text = pages["md"].read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert "| test | a | b |" in rows
    assert "| became right | 1 |" in rows
    assert all(line.count("|") - line.count("\\|") in {3, 4} for line in rows)
    assert "- `q0` In which form does Drug 0 come?" in text


@needs_chromium
def test_the_page_of_a_comparison_has_the_tests_and_both_answers_side_by_side(
    pages: dict[str, Path], tmp_path: Path
) -> None:
    assert pages["html"].name == "comparison.html"
    with open_browser(tmp_path / "chromium") as tab:
        tab.open(pages["html"].as_uri())
        assert tab.value("document.title") == "Evaluation a · b"
        for text in ("b against a", "McNemar's exact p", "the judge gave no score: time-out", "not medical advice"):
            assert text in tab.text("body")
        assert "50.0 %" in tab.text(".numbers td:has(.interval)"), "a share is drawn with its interval"
        tab.resize(390, 844)
        tab.wait(
            "[...document.querySelectorAll('.wide')].every(e => e.scrollWidth <= e.clientWidth)"
        )  # no column is cut
        tab.resize(1280, 900)
        tab.click(".numbers button")
        tab.wait("document.querySelector('#filter-change')?.value === 'became right'")
        tab.wait("document.querySelector('#count').textContent === '1 of 8 rollouts'")
        tab.click(".line")
        tab.wait("document.querySelector('#tab-question')")
        tab.click("#tab-question")
        tab.wait("document.querySelectorAll('.card').length === 2")
        assert ATTACK in tab.text(".cards"), "what a model writes is text"
        assert tab.value("document.title") != "owned"
        assert tab.errors == []
