"""What a run says fits the terminal, and stays one line an event in a log."""

from __future__ import annotations

import io

from rich.console import Console

from sql_agent.tracking.console import Ui

STEP = {
    "reward/mean": 0.5, "reward/rule": 0.1, "reward/judge": 0.4, "rollouts/kept": 16.0, "rollouts/enqueued": 16.0,
    "groups/informative": 0.75, "update/grad_norm": 0.76, "timing/rollout_s": 12.0, "timing/update_s": 20.0,
}  # fmt: skip


def test_a_step_is_wrapped_at_words_on_a_terminal_and_one_line_in_a_log() -> None:
    shown, logged = io.StringIO(), io.StringIO()
    Ui(Console(file=shown, force_terminal=True, color_system=None, width=60)).step(1, 20, STEP)
    Ui(Console(file=logged, width=60)).step(1, 20, STEP)
    assert max(map(len, shown.getvalue().splitlines())) <= 60
    assert len(logged.getvalue().splitlines()) == 1
    assert shown.getvalue().split() == logged.getvalue().split(), "no word is broken"


def test_the_table_before_and_after_shows_what_a_person_wants_to_know() -> None:
    output = io.StringIO()
    before = {"step": 0, "questions": 7, "val/reward/mean": 0.1, "val/agent/accurate": 0.0, "val/agent/sql_ok": 0.25}
    after = before | {"step": 20, "val/reward/mean": 0.734, "val/agent/accurate": 0.5}
    Ui(Console(file=output, width=80)).before_after([before, after])
    text = output.getvalue()
    for row in ("reward (0–1.1)", "accurate answers", "successful query"):
        assert row in text
    assert "0.734" in text and "after (step 20)" in text
    assert "rule" not in text
