"""A reader of the page sees the verdict, the failures and the figures, and no markup from data runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from sql_agent.judge_eval.dataset import shipped
from sql_agent.judge_eval.evaluate import Grading, JudgeEvaluation
from sql_agent.judge_eval.page import verdict, write_page
from tests.support.judge_evaluation import MARKUP, OftenFailing, given_by, measured


@pytest.mark.parametrize(
    ("judge", "agreement", "surplus"),
    [
        (lambda label: label, "good: quadratic kappa 1.00", "0.0 points"),
        (lambda label: 0.5 + 0.5 * label, "fair: quadratic kappa", "points of 100 above"),
        (lambda label: 1 - label, "weak: quadratic kappa -1.00", "points of 100"),
        (lambda label: 0.0, "weak: quadratic kappa 0.00", "points of 100 below"),
    ],
)
def test_the_verdict_is_in_plain_words(judge: Callable[[float], float], agreement: str, surplus: str) -> None:
    words = verdict(measured(given_by(judge)))
    assert agreement in words[0]
    assert surplus in words[1]
    assert "none was graded" in words[2]


def test_a_page_is_drawn_even_when_every_grading_failed(tmp_path: Path) -> None:
    gradings = [Grading("labels", case, error="no endpoint") for case in shipped("labels")]
    page = write_page(tmp_path, measured(gradings), gradings, "Not advice.").read_text(encoding="utf-8")
    assert f"{len(gradings)} of {len(gradings)} gradings failed (100.0 %)" in page
    assert "cannot be measured: no answer was graded" in page


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
def test_in_a_browser_a_reader_sees_verdict_failures_and_figures_and_no_markup_from_data_runs(
    graded_by_often_failing: tuple[OftenFailing, list[Grading], JudgeEvaluation], tmp_path: Path
) -> None:
    _, gradings, evaluation = graded_by_often_failing
    page = write_page(tmp_path, evaluation, gradings, "Not advice.")
    text, overflow = seen(page, tmp_path)
    assert "Not advice." in text
    assert f"{evaluation.failed} of {len(gradings)} gradings failed" in text
    assert "do not rely on these numbers" in text
    assert f"{evaluation.attacks_above_limit} of {evaluation.attacks_graded} attacks got through" in text
    for seen_in_a_figure in ("mean of a label", "over-credit (points of 100)", "disease to drugs", "precision"):
        assert seen_in_a_figure in text
    worst = max((g for g in gradings if g.verdict and g.set == "labels"), key=lambda g: abs(g.score - g.case.label))
    for part in (worst.case.question.question, worst.case.question.answer, worst.case.answer, worst.case.reason):
        assert " ".join(part.split()) in text
    assert f"no grade within 60 s {MARKUP}" in text, "markup is shown as text"
    assert "<b>by heart</b>" in text, "in a figure too"
    assert "owned" not in text.replace(MARKUP, ""), "and does not run"
    assert overflow <= 0, "nothing is wider than a narrow window"


def seen(page: Path, tmp_path: Path) -> tuple[str, int]:
    """What stands on the page in a window 500 pixels wide, title first, and by how many pixels it is too wide."""
    report = (
        "<script>addEventListener('load', () => setTimeout(() => {"
        "const wide = document.documentElement.scrollWidth - innerWidth, drawn = [...document.querySelectorAll"
        "('svg text')].map(t => t.textContent).join(' ');"
        "document.body.textContent = [wide, document.title, document.body.innerText, drawn].join(' ');"
        "}, 1000))</script>"
    )
    copy = tmp_path / "copy.html"
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{report}</body>"), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000",
             "--window-size=500,900", f"--user-data-dir={tmp_path / 'chromium'}"]  # fmt: skip
    dom = subprocess.run(
        ["chromium", *flags, "--dump-dom", copy.as_uri()], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    body = re.search(r"<body[^>]*>(.*)</body>", dom, re.DOTALL)
    assert body
    wide, text = " ".join(unescape(body.group(1)).split()).split(" ", 1)
    return text, int(wide)
