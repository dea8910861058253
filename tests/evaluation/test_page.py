"""The page of an evaluation shows every rollout, and markup in them does nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sql_agent.config.settings import load_settings, public_dump
from sql_agent.data.medical.task import WORDS
from sql_agent.evaluation.folder import About
from sql_agent.evaluation.measures import measure_set
from sql_agent.evaluation.page import with_evidence
from sql_agent.evaluation.results import Evaluation, report_on, write_results
from sql_agent.schemas import RolloutRecord
from tests.support.records import EVIDENCE, record

ATTACK = "</script><img src=x onerror=\"document.title='owned'\">"


def evaluation(model: str, records: list[RolloutRecord]) -> Evaluation:
    about = About(model=model, judge="facts/3", version="0", started="now", settings=public_dump(load_settings()))
    return Evaluation(about=about, asked={"test": len(records)}, sets={"test": measure_set(records, WORDS)})


def keyed(records: list[RolloutRecord]) -> dict[tuple[str, str], RolloutRecord]:
    return {("test", r.question.id): r for r in records}


@pytest.fixture
def pages(tmp_path: Path) -> dict[str, Path]:
    first = [record(i, float(i % 2), task_type="drug_field") for i in range(4)]
    second = [record(0, 1.0, said=f"capsule {ATTACK}"), *first[1:3], record(3, None)]
    report = report_on([evaluation("a", first), evaluation("b", second)], [keyed(first), keyed(second)], compared=True)
    return write_results(tmp_path, report, [keyed(first), keyed(second)])


def test_the_page_of_a_comparison_has_figures_test_and_both_answers(pages: dict[str, Path]) -> None:
    page = pages["html"].read_text(encoding="utf-8")
    assert pages["html"].name == "comparison.html"
    assert "b against a" in page and "McNemar&#39;s exact p" in page
    assert 'data-kind="became right"' in page and 'data-kind="not graded"' in page
    assert "the judge gave no score: time-out" in page
    assert "onerror" in page and ATTACK not in page, "what a model writes is text"
    assert "src=" not in page.replace("&lt;img src=", "") and "http" not in page, "it opens offline"


def test_the_table_to_paste_is_markdown_on_whole_lines(pages: dict[str, Path]) -> None:
    text = pages["md"].read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert "| test | a | b |" in rows
    assert "| became right | 1 |" in rows
    assert all(line.count("|") - line.count("\\|") in {3, 4} for line in rows)
    assert "- `q0` In which form does Drug 0 come?" in text


def test_evidence_is_marked_in_an_answer_and_markup_is_escaped() -> None:
    question = record(1, answer="oral capsule; syrup", evidence=(EVIDENCE,)).question
    marked = with_evidence("<b>Syrup</b>, oral capsule", question)
    assert marked == "&lt;b&gt;<mark>Syrup</mark>&lt;/b&gt;, <mark>oral capsule</mark>"
    assert with_evidence("nothing", question) == "nothing"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
def test_in_a_browser_the_filters_are_there_and_markup_is_inert(pages: dict[str, Path], tmp_path: Path) -> None:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000",
             f"--user-data-dir={tmp_path / 'chromium'}"]  # fmt: skip
    dom = subprocess.run(
        ["chromium", *flags, "--dump-dom", pages["html"].as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    assert "<title>Evaluation of a · b</title>" in dom
    assert '<span id="shown">4</span>' in dom
