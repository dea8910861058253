"""The page of a run in a real browser: what a person sees, filters, searches and opens, also when the run broke off."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sql_agent.errors import DataError
from sql_agent.questions.question_files import load_questions
from sql_agent.runs.report import write_report
from tests.support import library
from tests.support.browser import Tab, needs_chromium, open_browser
from tests.support.small_run import make_run, rollout_line, step_line, write_lines


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "night")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with open_browser(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture
def tab(browser: Tab) -> Iterator[Tab]:
    browser.resize(1280, 900)
    browser.dark(False)
    yield browser
    assert browser.errors == [], "nothing may fail in the page"
    assert browser.value("document.title") != "owned", "what a model writes is text"


@needs_chromium
def test_the_overview_says_what_was_run_how_it_ended_and_what_changed(run: Path, tab: Tab) -> None:
    page = write_report(run)
    tab.open(page.as_uri())
    assert tab.value("document.title") == "Run night"
    assert "For research on retrieval, not medical advice." in tab.text("#disclaimer")
    facts = tab.text(".facts")
    for text in (
        "How it ended\nfinished",
        "Steps\n2 / 2, reward 0.400",
        "Rollouts kept\n6 / 8",
        "Judge\nfacts",
        "Database\ndata/medical.db",
        "python 3.",
    ):
        assert facts.count(text) == 1
    assert facts.count("Database\n") == 1
    first = tab.text("main").splitlines()
    assert first[0] == "Result: validation, greedy", "the result comes before all else"
    assert "supervised start\tafter GRPO, step 2" in tab.text(".numbers thead")
    assert "75.0 % [49, 90]" in tab.text(".numbers"), "a share comes with its interval"
    assert "loss 0.5" in tab.text(".charts"), "the curve of supervised fine-tuning"
    assert tab.count(".chart svg polyline") >= 6
    assert "validation, natural 0.75" in tab.text(".chart .legend")
    assert "the judge gave no score: time-out" in tab.text("main")
    links = re.findall(r"https?://[^\s\"]+", page.read_text(encoding="utf-8"))
    assert links == ["http://www.w3.org/2000/svg"], "a name, not an address: the page opens offline"


@needs_chromium
def test_a_rollout_shows_queries_rows_errors_marked_evidence_and_the_reasons_of_the_judge(run: Path, tab: Tab) -> None:
    tab.open(f"{write_report(run).as_uri()}#view=rollouts&step_from=1&step_to=1")
    tab.wait("document.querySelectorAll('.line').length === 3")
    tab.click(".line.right")
    tab.wait("document.querySelector('.rollout')")
    shown = tab.text("#detail")
    assert tab.count("#detail details[open]") == 0, "the SQL of the reference is folded where the answer is right"
    for text in ("syntax: near SELCT", "hint: write SELECT first", "2 rows", "NULL", "right 1.100", "says tablet"):
        assert text in shown
    tab.click("#detail details summary")
    assert tab.text(".answer mark") == "Tablet"
    assert tab.text("tbody mark") == "tablet"
    assert "drugs_info.form" in tab.text("#detail li")
    assert "advantage +0.50" in tab.text("#detail header")
    tab.click("#tab-raw")
    tab.wait("document.querySelector('.raw.tool')")
    assert "query_database_by_sql({broken)" in tab.text("#detail")
    assert "500 + 21 tokens · 0.25 s" in tab.text("#detail")
    tab.click(".prompt summary")
    assert "You answer questions." in tab.text(".prompt")
    tab.click(".line.wrong")
    tab.click("#tab-rollout")
    tab.wait("document.querySelector('#detail details[open] mark')")


@needs_chromium
def test_a_group_stands_side_by_side_with_its_advantages_and_a_question_across_steps(run: Path, tab: Tab) -> None:
    tab.open(f"{write_report(run).as_uri()}#view=rollouts&step_from=1&step_to=1")
    tab.wait("document.querySelector('.line')")
    tab.click(".line.right")
    tab.wait("document.querySelector('#tab-group')")
    tab.click("#tab-group")
    tab.wait("document.querySelectorAll('.card').length === 3")
    assert [tab.text(f".card:nth-child({n}) .head .advantage") for n in (1, 2)] == ["+0.50", "-0.25"]
    assert "the judge gave no score" in tab.text(".card:nth-child(3)")
    tab.press("4")
    tab.wait("document.querySelectorAll('.pair .rollout').length === 2")
    assert "right 1.100" in tab.text(".pair") and "wrong 0.350" in tab.text(".pair")
    tab.press("3")
    tab.wait("document.querySelectorAll('.card').length === 6")
    tab.click(".card:nth-of-type(5) .head")
    tab.wait("document.querySelectorAll('.card.current').length === 1 && state.get('rollout') === '0-5'")


@needs_chromium
def test_rollouts_are_filtered_sorted_and_searched_by_any_text(run: Path, tab: Tab) -> None:
    tab.open(write_report(run).as_uri())
    tab.click("#show-rollouts")
    tab.wait("document.querySelector('#count')?.textContent === '9 of 9 rollouts'")
    tab.choose("#filter-type", "keyword")
    tab.wait("document.querySelector('#count').textContent === '2 of 9 rollouts'")
    tab.choose("#filter-type", "")
    tab.choose("#filter-outcome", "dropped: judge")
    tab.wait("document.querySelector('#count').textContent === '3 of 9 rollouts'")
    tab.choose("#filter-outcome", "")
    tab.choose("#filter-order", "reward, lowest first")
    tab.press("/")
    for text, found in (("剂量", 2), (" 剂量 selct", 2), (" near missing", 0)):
        tab.value("document.querySelector('#search').value = ''")
        tab.write(text)
        tab.wait(f"document.querySelector('#count').textContent === '{found} of 9 rollouts'")
    tab.press("Escape")
    tab.value("setState({text: ''}), refilter()")
    tab.wait("document.querySelector('#count').textContent === '9 of 9 rollouts'")
    assert tab.text(".line .score") == "0.10"
    tab.press("j")
    tab.wait("document.querySelector('.line[aria-selected=true]')")
    tab.press("j")
    tab.wait("document.querySelectorAll('.line')[1].ariaSelected === 'true'")


@needs_chromium
def test_wrong_answers_are_counted_by_cause_and_each_count_leads_to_its_rollouts(run: Path, tab: Tab) -> None:
    tab.open(write_report(run).as_uri())
    assert "found rows, gave another answer\t2\n" in tab.text("main"), "not those before the training"
    tab.click(".numbers tbody td button")
    tab.wait("document.querySelector('#count')?.textContent === '2 of 9 rollouts'")


@needs_chromium
def test_rollouts_that_did_the_same_are_one_card_with_their_number(run: Path, tab: Tab) -> None:
    write_lines(run / "rollouts.jsonl", [rollout_line(3, 0.25) for _ in range(8)])
    tab.open(f"{write_report(run).as_uri()}#view=rollouts&step_from=3")
    tab.wait("document.querySelector('.line')")
    tab.click(".line")
    tab.wait("document.querySelector('#tab-group')")
    tab.click("#tab-group")
    tab.wait("document.querySelectorAll('.card').length === 1")
    assert tab.text(".card .times") == "× 8"


@needs_chromium
def test_the_questions_of_the_chosen_rollouts_are_saved_as_a_question_file(run: Path, tab: Tab, tmp_path: Path) -> None:
    tab.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    tab.open(f"{write_report(run).as_uri()}#view=rollouts&type=keyword")
    tab.wait("document.querySelector('#count')?.textContent === '2 of 9 rollouts'")
    tab.click("#save")
    saved = tmp_path / "questions.jsonl"
    for _ in range(100):
        if saved.exists() and saved.stat().st_size:
            break
        time.sleep(0.05)
    assert [question.id for question in load_questions(saved)] == ["dose"]


@needs_chromium
def test_an_alarm_of_the_reward_is_the_first_that_one_sees(run: Path, tab: Tab) -> None:
    calls = [2.0] * 5 + [0.5] * 5
    write_lines(run / "metrics.jsonl", [step_line(3 + n) | {"agent/tool_calls": calls[n]} for n in range(10)])
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[2:]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tab.open(write_report(run).as_uri())
    assert "queries a rollout fell from 2.00 to 0.50" in tab.text("main > div > section:first-child")
    tab.click("#language")
    tab.wait("document.documentElement.lang === 'zh'")
    assert "每条轨迹的查询次数从 2.00 降到 0.50" in tab.text("main > div > section:first-child")
    tab.click("#language")


@needs_chromium
def test_a_click_is_not_lost_when_the_list_is_drawn_again_while_the_button_is_down(run: Path, tab: Tab) -> None:
    tab.open(write_report(run).as_uri())
    tab.click("#show-rollouts")
    tab.wait("document.querySelector('.line')")
    tab.click(".line .asked", while_down="refresh(report)")
    tab.wait("document.querySelector('#tab-question')")


@needs_chromium
def test_the_page_speaks_chinese_turns_dark_and_fits_a_phone(run: Path, tab: Tab) -> None:
    tab.open(write_report(run).as_uri())
    tab.click("#language")
    tab.wait("document.documentElement.lang === 'zh'")
    assert "如何结束\n正常结束" in tab.text(".facts")
    assert tab.text("#disclaimer") == "仅供检索研究，不构成医疗建议。"
    tab.wait("document.querySelector('.chart .legend').innerText.includes('验证，自然问题')")  # drawn after the layout
    background = "getComputedStyle(document.body).backgroundColor"
    before = tab.value(background)
    tab.press("d")
    assert tab.value(background) != before
    tab.press("l")
    tab.press("d")
    tab.resize(360, 740)
    tab.wait("document.documentElement.scrollWidth <= innerWidth")  # nothing sticks out at the side
    tab.click("#show-rollouts")
    tab.wait("document.querySelector('.line')")
    tab.click(".line")
    tab.wait("document.querySelector('.rollout')")
    tab.wait("document.documentElement.scrollWidth <= innerWidth")
    assert tab.value("document.querySelector('#lines').getBoundingClientRect().height") == 0, (
        "a rollout has all the width"
    )
    tab.click(".back")
    tab.wait("document.querySelector('#lines').getBoundingClientRect().height > 100")


@needs_chromium
def test_two_runs_are_compared_by_settings_curves_and_questions_that_changed(run: Path, tab: Tab) -> None:
    page = write_report(run, make_run(run.parent / "day", gain=0.1))
    assert page.name == "comparison.html"
    tab.open(page.as_uri())
    assert "train.lr\t0.000005\t0.000001" in tab.text("main"), "a setting that differs"
    tab.wait("document.querySelector('polyline.dashed')")  # charts are drawn when their size is known
    assert tab.count("polyline.dashed") == tab.count("polyline.curve:not(.dashed)") > 0
    assert "B day" in tab.text("main")
    tab.click("#show-rollouts")
    tab.wait("document.querySelector('#filter-change')")
    tab.choose("#filter-change", "became wrong")
    tab.wait("document.querySelector('#count').textContent === '1 of 18 rollouts'")
    tab.click(".line")
    tab.wait("document.querySelector('#tab-question')")
    tab.click("#tab-question")
    tab.wait("document.querySelectorAll('.card').length === 4")


@needs_chromium
def test_a_run_that_broke_off_still_has_a_page_that_says_so(run: Path, tab: Tab) -> None:
    with (run / "rollouts.jsonl").open("a", encoding="utf-8") as sink:
        sink.write('{"step": 3, "rollou')
    tab.open(write_report(run).as_uri())
    assert "Rollouts 9" in tab.text("#bar")
    for name in ("metrics.jsonl", "validation.jsonl", "rollouts.jsonl", "run.json"):
        (run / name).unlink()
    tab.open(write_report(run).as_uri())
    assert "not recorded, before its first step" in tab.text(".facts")
    assert "No validation was finished." in tab.text("main")
    tab.click("#show-rollouts")
    tab.wait("document.querySelector('#detail').textContent === 'No rollout was recorded.'")


def test_the_page_has_the_disclaimer_of_the_run_s_task(run: Path) -> None:
    (run / "config.json").write_text('{"task": "tests.support.library:TASK", "runs_dir": "runs"}', encoding="utf-8")
    page = write_report(run).read_text(encoding="utf-8")
    assert library.TASK.disclaimer in page


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no run in"):
        write_report(tmp_path)


@needs_chromium
def test_a_tool_call_that_cannot_be_read_is_not_shown_as_the_answer(run: Path, tab: Tab) -> None:
    line = rollout_line(2, 0.0)
    line["record"] |= {"answer": "<tool_call>{broken", "outcome": "malformed_call"}
    write_lines(run / "rollouts.jsonl", [line])
    tab.open(f"{write_report(run).as_uri()}#view=rollouts&outcome=malformed_call")
    tab.wait("document.querySelectorAll('.line').length === 1")
    tab.click(".line")
    tab.wait("document.querySelector('.rollout pre.raw')")
    assert tab.text(".rollout pre.raw") == "<tool_call>{broken" and tab.count(".rollout .answer") == 0
    assert "wrote a tool call that cannot be read" in tab.text(".rollout")
