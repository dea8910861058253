"""What a run says fits the terminal, and stays one line an event in a log."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from sql_agent.cli.command import print_error
from sql_agent.errors import TrainingError
from sql_agent.runs.charts import kinds_table, result_table, stages
from sql_agent.runs.console import Ui, print_table, wrap
from sql_agent.runs.rollout_view import show_result, show_span
from sql_agent.schemas import QueryAnswer

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


def test_fine_tuning_says_from_its_second_step_on_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ui, clock = Ui(), iter([100.0, 130.0, 160.0])
    monkeypatch.setattr("sql_agent.runs.console.time.monotonic", lambda: next(clock))
    for step in (1, 2, 3):
        ui.sft(step, 16, 0.5)
    said = capsys.readouterr().out.splitlines()
    assert [line.partition("; ")[2] for line in said] == ["", "about 7 min left", "about 6 min left"]


def test_the_table_before_and_after_shows_what_a_person_wants_to_know() -> None:
    output = io.StringIO()
    sets: dict[str, dict[str, float]] = {
        "template": {
            "questions": 7,
            "accurate": 1 / 7,
            "reward/mean": 0.1,
            "agent/sql_ok": 0.25,
            "accurate/two_hops": 0.0,
        },
        "natural": {"questions": 12, "reward/mean": 0.05, "refused_answerable": 0.73, "right_refusals": 1.0},
    }
    before = {"step": 0.0} | {f"val/{name}/{k}": v for name, values in sets.items() for k, v in values.items()}
    after = before | {"step": 20, "val/template/accurate": 4 / 7, "val/natural/refused_answerable": 0.25}
    untrained = {**before, "step": -1, "val/template/accurate": 0.0}
    names = [stage.name for stage in stages([untrained, before, after], sft_steps=3)]
    assert names == ["untrained", "supervised start", "after GRPO, step 20"]
    measured = stages([before, after], sft_steps=3)
    for table in (result_table(measured), kinds_table(measured)):
        print_table(table, Console(file=output, width=80))
    cells = [re.split(r"\s{2,}", line.strip()) for line in output.getvalue().splitlines()]
    rows = {row[0]: row[1:] for row in cells}
    assert rows["template: questions"] == ["7", "7"] and rows["natural: questions"] == ["12", "12"]
    assert rows["accurate"] == ["14.3 % [3, 51]", "57.1 % [25, 84]"], "few questions, a wide interval"
    assert rows["answerable, but refused"] == ["0.730", "0.250"]
    assert rows["accurate: two hops"] == ["0.000", "0.000"]
    assert ["supervised start", "step 20"] in cells
    assert "rule" not in output.getvalue()


@pytest.mark.parametrize("wraps", [True, False])
def test_what_others_wrote_cannot_steer_the_terminal(wraps: bool, capsys: pytest.CaptureFixture[str]) -> None:
    ui, hostile = Ui(Console(file=(shown := io.StringIO())), wraps=wraps), "\x1b]0;title\x07\x9b2J"
    span = SimpleNamespace(sequence_id=1, name=hostile, start_time=0.0, end_time=1.0, attributes={"reply": hostile})
    ui.say(hostile)
    show_span(span, ui)
    show_result(QueryAnswer(status="ok", columns=(hostile,), records=(("1",),), count=1), ui.console)
    print_error(TrainingError(hostile, hint=hostile))
    output = shown.getvalue() + capsys.readouterr().err
    assert output.count("]0;title") == 6
    assert not {"\x1b", "\x07", "\x9b"} & set(output)


@given(text=st.text(alphabet="ab ,.(布洛芬，。\n", max_size=200), width=st.integers(4, 30))
def test_every_line_fits_and_no_character_is_lost(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("Levothyroxine treats it.", 14, ["Levothyroxine", "treats it."]),
        ("Levothyroxine", 5, ["Levot", "hyrox", "ine"]),
        ("布洛芬，片剂。", 7, ["布洛", "芬，片", "剂。"]),
        ("SELECT 1\n  FROM t", 20, ["SELECT 1", "  FROM t"]),
        ("a\x1b[2Jb\tc", 20, ["a [2Jb c"]),
        ("", 20, [""]),
    ],
)
def test_a_line_ends_where_a_reader_expects_it(text: str, width: int, lines: list[str]) -> None:
    assert wrap(text, width) == lines


def test_a_path_stays_whole_so_that_it_can_be_copied() -> None:
    assert wrap("see /a/long/path/to/report.html now", 10, fold=False) == ["see", "/a/long/path/to/report.html", "now"]
