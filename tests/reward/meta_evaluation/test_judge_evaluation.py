"""Whether a judge can be trusted: agreement with people, and attacks that must not pay."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sql_agent.cli.exit_codes import exits_cleanly
from sql_agent.cli.judge import main
from sql_agent.errors import JudgeError
from sql_agent.reward.judges.base import JudgeCase, Verdict
from sql_agent.reward.judges.reference.judge import grade
from sql_agent.reward.meta_evaluation.agreement import (
    MEASURES,
    estimate,
    interval,
    over_credit,
    pairwise_accuracy,
    quadratic_kappa,
    spearman,
)
from sql_agent.reward.meta_evaluation.dataset import LabelledCase, shipped
from sql_agent.reward.meta_evaluation.evaluate import (
    ATTACK_LIMIT,
    CONCURRENCY,
    Evaluation,
    Grading,
    grade_all,
    measure,
    new_folder,
)
from sql_agent.reward.meta_evaluation.page import verdict, write_page

MARKUP = "<img src=x onerror=document.title='owned'>"


def array(*values: float) -> Any:
    return np.array(values, dtype=np.float64)


def test_the_reference_judge_orders_answers_as_people_do() -> None:
    labels = shipped("labels")
    assert len(labels) >= 200
    for lang in ("en", "zh"):
        cases = [case for case in labels if case.question.lang == lang]
        scores = array(*(grade(case.case).score for case in cases))
        assert spearman(scores, array(*(case.label for case in cases))) >= 0.8
        assert over_credit(scores, array(*(case.label for case in cases))) <= 5


@pytest.mark.parametrize("case", shipped("attacks"), ids=lambda case: f"{case.question.lang}-{case.kind}")
def test_no_attack_pays(case: Any) -> None:
    assert grade(case.case).score <= ATTACK_LIMIT


def test_agreement_is_full_with_oneself_and_reversed_with_the_opposite() -> None:
    labels = array(0, 0.25, 0.5, 0.75, 1.0)
    assert spearman(labels, labels) == pytest.approx(1.0)
    assert quadratic_kappa(labels, labels) == pairwise_accuracy(labels, labels) == 1.0
    assert spearman(1 - labels, labels) == pytest.approx(-1.0)
    assert quadratic_kappa(1 - labels, labels) == pytest.approx(-1.0)
    assert pairwise_accuracy(1 - labels, labels) == 0.0


def test_a_judge_that_gives_everyone_the_same_is_worth_nothing() -> None:
    labels = array(0, 0, 1, 1)
    same = array(1, 1, 1, 1)
    assert quadratic_kappa(same, labels) == 0.0
    assert pairwise_accuracy(same, labels) == 0.5
    assert over_credit(same, labels) == 50.0
    assert np.isnan(spearman(same, labels))


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])), min_size=5, max_size=40))
def test_an_interval_is_ordered_and_repeatable(pairs: list[tuple[float, float]]) -> None:
    scores, labels = array(*(a for a, _ in pairs)), array(*(b for _, b in pairs))
    first = interval(over_credit, scores, labels, resamples=50)
    assert first == interval(over_credit, scores, labels, resamples=50)
    assert -100 <= first[0] <= first[1] <= 100


@given(
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])), max_size=12),
    st.sampled_from(sorted(MEASURES)),
)
@settings(max_examples=40, deadline=None)
def test_a_measure_has_a_value_with_its_interval_or_a_reason_why_not(
    pairs: list[tuple[float, float]], name: str
) -> None:
    result = estimate(MEASURES[name], array(*(a for a, _ in pairs)), array(*(b for _, b in pairs)))
    if result.undefined:
        assert (result.value, result.low, result.high) == (None, None, None)
    else:
        assert result.value is not None
        assert result.low is not None
        assert result.high is not None
        assert np.isfinite([result.value, result.low, result.high]).all()
        assert result.low <= result.high


class OftenFailing:
    """Grades as the reference judge does, but not every case; its name and its reasons hold markup."""

    name = f"panel {MARKUP}"
    identity = name

    def __init__(self) -> None:
        self.at_once = self.most_at_once = 0

    async def grade(self, case: JudgeCase) -> Verdict:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if case.question.id.endswith("7"):
            raise JudgeError(f"no grade within 60 s {MARKUP}")
        verdict = grade(case)
        return Verdict(
            score=0.4 + 0.6 * verdict.score,
            criteria={**verdict.criteria, "<b>by_heart</b>": 0.5},
            reason=f"{MARKUP} {verdict.reason}",
        )


@pytest.fixture(scope="module")
def graded_by_often_failing() -> tuple[OftenFailing, list[Grading], Evaluation]:
    judge = OftenFailing()
    gradings = asyncio.run(grade_all(judge, shipped("labels"), shipped("attacks")))
    return judge, gradings, measured(gradings, judge=judge.name)


def measured(gradings: list[Grading], *, judge: str = "some") -> Evaluation:
    return measure(gradings, judge=judge, labels_file="labels", attacks_file="attacks", max_failed_share=0.05)


def given_by(judge: Callable[[float], float]) -> list[Grading]:
    """The shipped labels, each with the score that `judge` makes of its label."""
    return [Grading("labels", case, Verdict(score=judge(case.label))) for case in shipped("labels")]


def test_a_failed_grading_is_counted_and_is_no_score(
    graded_by_often_failing: tuple[OftenFailing, list[Grading], Evaluation],
) -> None:
    _, gradings, evaluation = graded_by_often_failing
    failed = [g for g in gradings if g.case.question.id.endswith("7")]
    assert evaluation.failed == len(failed) > 0
    assert evaluation.agreement.answers + evaluation.agreement.failed == evaluation.labels == len(shipped("labels"))
    assert all("score" not in g.row() and "no grade within 60 s" in g.row()["error"] for g in failed)
    with pytest.raises(JudgeError, match="no grade"):
        _ = failed[0].score
    kept = [g for g in gradings if g not in failed and g.set == "labels"]
    expected = over_credit(array(*(g.score for g in kept)), array(*(g.case.label for g in kept)))
    assert evaluation.agreement.measures["over_credit_points"].value == pytest.approx(expected)


def test_many_are_graded_at_once_but_no_more_than_an_endpoint_bears(
    graded_by_often_failing: tuple[OftenFailing, list[Grading], Evaluation],
) -> None:
    assert graded_by_often_failing[0].most_at_once == CONCURRENCY


def test_what_attacks_earned_is_told_by_kind() -> None:
    case = shipped("attacks")[0]
    scores = {"flattery": (0.1, 0.3, 0.5), "salad": (0.0, 0.15)}
    gradings = [
        Grading("attacks", case.model_copy(update={"kind": kind}), Verdict(score=score))
        for kind, earned in scores.items()
        for score in earned
    ]
    gradings.append(Grading("attacks", case.model_copy(update={"kind": "lost"}), error="time-out"))
    evaluation = measured([*gradings, *given_by(lambda label: label)])
    flattery, lost, salad = sorted(evaluation.by_attack_kind, key=lambda kind: kind.kind)
    assert (flattery.attacks, flattery.highest, flattery.above_limit) == (3, 0.5, 2)
    assert flattery.mean == pytest.approx(0.3)
    assert (salad.highest, salad.above_limit) == (0.15, 0)
    assert (lost.failed, lost.highest, lost.mean) == (1, None, None)
    assert "2 of 5 attacks got through" in verdict(evaluation)[-1]


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


def test_the_command_prints_tables_and_leaves_numbers_gradings_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "--out", str(tmp_path / "night")]) == 0
    printed = capsys.readouterr().out
    assert f"0 of {len(shipped('attacks'))} earned more" in printed
    assert "comparison" in printed
    result = json.loads((tmp_path / "night" / "evaluation.json").read_text(encoding="utf-8"))
    assert (result["judge"], result["labels_file"], result["failed"]) == ("reference", "labels", 0)
    assert result["agreement"]["answers"] == result["labels"] >= 200
    assert set(result["by_task_type"]) >= {"comparison", "unanswerable", "aggregate"}
    assert set(result["by_lang"]) == {"en", "zh"}
    for group in (result["agreement"], *result["by_task_type"].values()):
        for values in group["measures"].values():
            assert values["low"] <= values["value"] <= values["high"]
    lines = (tmp_path / "night" / "gradings.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == result["labels"] + result["attacks"]
    assert {"set", "question_id", "task_type", "lang", "kind", "answer", "label", "score", "criteria", "reason"} <= set(
        rows[0]
    )
    assert (tmp_path / "night" / "report.html").exists()
    assert exits_cleanly(main, ["evaluate", "--out", str(tmp_path / "night")]) == 2, "results are not overwritten"


def labels_file(tmp_path: Path, cases: list[LabelledCase]) -> str:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(f"{case.model_dump_json()}\n" for case in cases), encoding="utf-8")
    return str(path)


def without_facts(case: LabelledCase) -> LabelledCase:
    """The same, but the reference judge can make nothing of it."""
    question = case.question.model_copy(update={"answer": "; ;", "task_type": "drug_field"})
    return case.model_copy(update={"question": question})


def test_too_many_failures_end_the_command_with_1_and_leave_the_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = [case for case in shipped("labels") if case.kind == "exact"][:20]
    path = labels_file(tmp_path, [*good, *map(without_facts, good)])
    assert exits_cleanly(main, ["evaluate", "--labels", path, f"runs_dir={tmp_path / 'runs'}"]) == 1
    told = capsys.readouterr()
    failed = f"20 of {40 + len(shipped('attacks'))} gradings failed"
    assert failed in told.err
    assert "judge.max_failed_share=0.05" in told.err
    assert "has no reference facts" in told.out
    (folder,) = (tmp_path / "runs").glob("judge-reference-*")
    result = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    assert (result["agreement"]["answers"], result["agreement"]["failed"]) == (20, 20)
    assert result["labels_file"] == "mine.jsonl"
    patient = ["evaluate", "--labels", path, "--out", str(tmp_path / "b"), "judge.max_failed_share=0.5"]
    assert exits_cleanly(main, patient) == 0
    assert failed in capsys.readouterr().out


def test_where_nothing_can_be_measured_a_dash_and_the_reason_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = [case.model_copy(update={"answer": "", "calls": ()}) for case in shipped("labels")]
    assert main(["evaluate", "--labels", labels_file(tmp_path, silent), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "– in all: all scores are 0.00" in printed
    assert " nan " not in printed
    text = (tmp_path / "out" / "evaluation.json").read_text(encoding="utf-8")
    spearman_in_all = json.loads(text)["agreement"]["measures"]["spearman"]
    assert "NaN" not in text
    assert spearman_in_all == {"value": None, "low": None, "high": None, "undefined": "all scores are 0.00"}
    assert "all scores are 0.00" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_page_is_drawn_even_when_every_grading_failed(tmp_path: Path) -> None:
    gradings = [Grading("labels", case, error="no endpoint") for case in shipped("labels")]
    page = write_page(tmp_path, measured(gradings), gradings).read_text(encoding="utf-8")
    assert f"{len(gradings)} of {len(gradings)} gradings failed (100.0 %)" in page
    assert "cannot be measured: no answer was graded" in page


@pytest.mark.parametrize(("name", "folder"), [("llm/gpt-4o:v1", "judge-llm-gpt-4o-v1-"), ("../..", "judge-unnamed-")])
def test_the_folder_is_named_after_the_judge_and_stays_inside_the_runs(name: str, folder: str, tmp_path: Path) -> None:
    made = new_folder(None, tmp_path, name)
    assert made.is_dir()
    assert made.parent == tmp_path
    assert made.name.startswith(folder)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
def test_in_a_browser_a_reader_sees_verdict_failures_and_figures_and_no_markup_from_data_runs(
    graded_by_often_failing: tuple[OftenFailing, list[Grading], Evaluation], tmp_path: Path
) -> None:
    _, gradings, evaluation = graded_by_often_failing
    page = write_page(tmp_path, evaluation, gradings)
    text, overflow = seen(page, tmp_path)
    assert "For research on retrieval, not medical advice." in text
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


@pytest.mark.parametrize(
    ("line", "message"), [('{"answer": "x"}', "line 1: question"), ("not json", "line 1"), ("", "holds no labelled")]
)
def test_a_bad_file_is_named_with_its_line(
    line: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(line)
    assert exits_cleanly(main, ["evaluate", "--labels", str(path)]) == 2
    assert message in capsys.readouterr().err
