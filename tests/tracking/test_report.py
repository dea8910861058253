"""The page of a run: what a person sees, also when the run broke off or its data holds markup."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sql_agent.errors import DataError
from sql_agent.tracking.report import write_report
from tests.support import library

ATTACK = "<script>document.title='owned'</script>"


def rollout(step: int, reward: float, *, dropped: dict[str, str] | None = None) -> dict[str, Any]:
    answer = {"status": "ok", "columns": ["form"], "records": [[ATTACK]], "count": 1, "truncated": False, "error": None}
    empty = {"status": "ok", "columns": ["form"], "records": [], "count": 0, "hint": "nearest med_name 'A'"}
    record = {
        "question": {"id": "q", "question": f"Which form, {ATTACK}?", "answer": "tablet"},
        "answer": f"tablet {ATTACK}",
        "outcome": "answered",
        "calls": [
            {"sql": "SELECT form FROM drug_info", "answer": empty, "seconds": 0.001},
            {"sql": "SELECT form FROM drugs_info", "answer": answer, "seconds": 0.001},
        ],
        "turns": 2,
        "reward": None if dropped else {"rule": 0.1, "judge": reward, "criteria": {"facts": reward}, "reason": "ok"},
    }
    return {"step": step, "mode": "train", "rollout_id": f"r{reward}", "group": "q", "advantage": 0.5, "triplets": 2,
            "sequences": 1, "dropped": dropped, "record": record}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "night"
    folder.mkdir()
    (folder / "config.json").write_text('{"task": "medical", "judge": {"name": "facts"}, "seed": 7}', encoding="utf-8")
    step = {"rollouts/enqueued": 4, "rollouts/finished": 4, "rollouts/with_triplets": 4, "rollouts/kept": 3,
            "rollouts/split": 0, "reward/mean": 0.4, "reward/judge": 0.35, "reward/rule": 0.05, "agent/turns": 2,
            "agent/tool_calls": 1, "agent/sql_ok": 1, "timing/rollout_s": 20, "timing/update_s": 10}  # fmt: skip
    write(folder / "metrics.jsonl", [{"step": n, **step} for n in (1, 2)])
    write(
        folder / "validation.jsonl",
        [
            {
                "step": n,
                **{
                    f"val/{name}/{key}": value
                    for name in ("template", "natural")
                    for key, value in {
                        "questions": 14,
                        "reward/mean": v,
                        "accurate": v / 2,
                        "accurate/keyword_search": v,
                    }.items()
                },
            }
            for n, v in ((0, 0.25), (2, 0.5))
        ],
    )
    write(
        folder / "rollouts.jsonl",
        [rollout(2, 0.9), rollout(2, 0.1), rollout(2, 0.0, dropped={"cause": "judge", "detail": "time-out"})],
    )
    return folder


def write(path: Path, objects: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(o) + "\n" for o in objects), encoding="utf-8")


def test_the_page_says_what_changed_what_was_lost_and_what_was_asked(run: Path) -> None:
    page = write_report(run).read_text(encoding="utf-8")
    for heading in ("template, step 0", "template, step 2", "natural, step 0", "natural, step 2"):
        assert f"<th>{heading}</th>" in page
    cells = "<td>0.250</td><td>0.500</td>" * 2
    assert f"<th>reward (0–1.1)</th>{cells}" in page
    assert f"<th>accurate: keyword search</th>{cells}" in page
    assert "6 / 8" in page
    assert "the judge gave no score: time-out" in page
    assert "keyword search" in page, "accurate answers by kind of question"
    assert "SELECT form FROM drugs_info" in page
    assert "hint: nearest med_name &#39;A&#39;" in page
    assert "For research on retrieval, not medical advice." in page
    assert "<script src" not in page, "the page must work offline"


def test_a_run_that_broke_off_still_has_a_page_that_says_so(run: Path) -> None:
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as sink:
        sink.write('{"step": 3, "rollouts/enq')
    assert "6 / 8" in write_report(run).read_text(encoding="utf-8")
    for name in ("metrics", "validation", "rollouts"):
        (run / f"{name}.jsonl").unlink()
    page = write_report(run).read_text(encoding="utf-8")
    assert "ended before its first step" in page
    assert "No validation was finished" in page


def test_the_page_has_the_disclaimer_of_the_run_s_task(run: Path) -> None:
    (run / "config.json").write_text('{"task": "tests.support.library:TASK"}', encoding="utf-8")
    page = write_report(run).read_text(encoding="utf-8")
    assert library.TASK.disclaimer in page
    assert "medical" not in page


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no run"):
        write_report(tmp_path)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
def test_in_a_browser_the_figures_are_drawn_and_markup_in_the_data_is_inert(run: Path, tmp_path: Path) -> None:
    page = write_report(run)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000",
             f"--user-data-dir={tmp_path / 'chromium'}"]  # fmt: skip
    dom = subprocess.run(
        ["chromium", *flags, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    assert "<title>Run night</title>" in dom
    assert dom.count("main-svg") >= 4
