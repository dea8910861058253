"""Lines end between words, and no line is wider than the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sql_agent.runs.text_layout import wrap


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
