"""A served report follows a run that is still going on, and only this machine can read it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sql_agent.runs.run_reader import RunReader
from sql_agent.runs.serve import ReportServer
from sql_agent.system.sockets import bind_local
from tests.support.browser import needs_chromium, open_browser
from tests.support.small_run import make_run, rollout_line, step_line, write_lines


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "night")


@pytest.fixture
def url(run: Path) -> Iterator[str]:
    with bind_local() as sock, ReportServer([RunReader(run)], sock) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


def test_the_data_change_only_when_the_run_s_files_do(run: Path, url: str) -> None:
    first = httpx.get(f"{url}data")
    assert len(first.json()["runs"][0]["columns"]["step"]) == 9
    again = {"If-None-Match": first.headers["ETag"]}
    assert httpx.get(f"{url}data", headers=again).status_code == 304
    write_lines(run / "rollouts.jsonl", [rollout_line(3, 1.0)])
    changed = httpx.get(f"{url}data", headers=again)
    assert changed.json()["runs"][0]["columns"]["step"][-1] == 3
    assert len(httpx.get(f"{url}block/0-0").text.splitlines()) == 10
    (run / "rollouts.jsonl").write_text("", encoding="utf-8")  # as a resumed run cuts it
    assert httpx.get(f"{url}data").json()["runs"][0]["columns"]["step"] == []


def test_a_file_that_is_damaged_while_it_is_served_is_named_with_its_line_until_it_is_mended(
    run: Path, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def served() -> tuple[list[str], int]:
        data = httpx.get(f"{url}data").json()
        return data["problems"], len(data["runs"][0]["columns"]["step"])

    whole, described = (run / "rollouts.jsonl").read_bytes(), (run / "run.json").read_bytes()
    assert served() == ([], 9)
    for damage in (b'{"step": 3, "mo\n', b"\0\0\0\n", b"{}\n", b'{"step": 3, "record": 5}\n'):
        (run / "rollouts.jsonl").write_bytes(whole + damage)
        for _ in range(2):
            (problem,), rollouts = served()
            assert f"{run / 'rollouts.jsonl'} is damaged: line 10: " in problem and rollouts == 9
            assert f"sed -i '10d' {run / 'rollouts.jsonl'}" in problem
    assert httpx.get(url).status_code == 200
    (run / "rollouts.jsonl").write_bytes(whole)
    write_lines(run / "rollouts.jsonl", [rollout_line(3, 1.0)])
    assert served() == ([], 10)
    (run / "run.json").write_bytes(b"{")
    assert f"{run / 'run.json'} is damaged: line 1: " in served()[0][0]
    (run / "run.json").write_bytes(described)
    run.rename(tmp_path / "moved")
    assert f"{run} is gone" in served()[0][0] and served()[1] == 10
    (tmp_path / "moved").rename(run)
    assert served() == ([], 10)
    assert capfd.readouterr().err == "", "no traceback in the terminal"


def test_without_the_token_of_its_address_nothing_is_served(url: str) -> None:
    root, token, _ = url.rsplit("/", 2)
    others = [f"/{token[:-1]}/", f"/x{token}/data", f"/data/{token}"]
    for path in ["", "/", "/data", "/block/0-0", *others]:
        refused = httpx.get(f"{root}{path}")
        assert refused.status_code == 401 and "sql-agent report --serve" in refused.text
    assert httpx.get(url).headers["Referrer-Policy"] == "no-referrer"


def test_what_is_not_there_is_404_and_another_site_s_name_is_refused(url: str) -> None:
    for path in ("block/0-9", "block/3-0", "block/x", "config.json", "%2e%2e/etc/passwd"):
        assert httpx.get(url + path).status_code == 404
    assert httpx.get(url, headers={"Host": "evil.example:80"}).status_code == 403


@needs_chromium
@pytest.mark.slow
def test_in_a_browser_the_page_follows_the_run_and_keeps_what_is_open(run: Path, url: str, tmp_path: Path) -> None:
    with open_browser(tmp_path / "chromium") as tab:
        tab.open(url)
        assert "2 / 2" in tab.text(".facts")
        write_lines(run / "metrics.jsonl", [step_line(3)])
        tab.wait("document.querySelector('.facts').innerText.includes('3 / 2')")
        tab.click("#show-rollouts")
        tab.wait("document.querySelector('.line')")
        tab.click(".line:nth-child(2)")
        tab.wait("document.querySelector('.rollout')")
        tab.value("document.querySelector('.rollout').dataset.kept = 'yes'")
        write_lines(run / "rollouts.jsonl", [rollout_line(3, 1.0)])
        tab.wait("document.querySelector('#count').textContent === '10 of 10 rollouts'")
        assert tab.value("document.querySelector('.rollout').dataset.kept") == "yes"
        assert tab.count(".line[aria-selected=true]") == 1
        with (run / "metrics.jsonl").open("a") as file:
            file.write("nonsense\n")
        tab.wait("document.querySelector('#problems').innerText.includes('metrics.jsonl is damaged: line 4')")
        assert tab.errors == []
