"""A served report follows a run that is still going on, and only this machine can read it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sql_agent.runs import pages
from sql_agent.runs.report import LiveReport, RunReader
from sql_agent.system.servers import bearer
from tests.support.browser import needs_chromium, open_browser
from tests.support.served_app import served_app
from tests.support.small_run import make_run, rollout_line, step_line, write_lines

TOKEN = "the-token"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "night")


@pytest.fixture
def url(run: Path) -> Iterator[str]:
    with served_app(LiveReport([RunReader(run)]).app(TOKEN)) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers=bearer(TOKEN)) as client:
        yield client


def test_the_data_change_only_when_the_run_s_files_do(run: Path, client: httpx.Client) -> None:
    first = client.get("data")
    assert len(first.json()["runs"][0]["columns"]["step"]) == 9
    again = {"If-None-Match": first.headers["ETag"]}
    assert client.get("data", headers=again).status_code == 304
    write_lines(run / "rollouts.jsonl", [rollout_line(3, 1.0)])
    changed = client.get("data", headers=again)
    assert changed.json()["runs"][0]["columns"]["step"][-1] == 3
    assert len(client.get("block/0-0").text.splitlines()) == 10
    (run / "rollouts.jsonl").write_text("", encoding="utf-8")  # as a resumed run cuts it
    assert client.get("data").json()["runs"][0]["columns"]["step"] == []


def test_a_file_that_is_damaged_while_it_is_served_is_named_with_its_line_until_it_is_mended(
    run: Path, client: httpx.Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def served() -> tuple[list[str], int]:
        data = client.get("data").json()
        return data["problems"], len(data["runs"][0]["columns"]["step"])

    whole, described = (run / "rollouts.jsonl").read_bytes(), (run / "run.json").read_bytes()
    assert served() == ([], 9)
    for damage in (b'{"step": 3, "mo\n', b"\0\0\0\n", b"{}\n", b'{"step": 3, "record": 5}\n'):
        (run / "rollouts.jsonl").write_bytes(whole + damage)
        for _ in range(2):
            (problem,), rollouts = served()
            assert f"{run / 'rollouts.jsonl'} is damaged: line 10: " in problem and rollouts == 9
            assert f"sed -i '10d' {run / 'rollouts.jsonl'}" in problem
    assert client.get("").status_code == 200
    (run / "rollouts.jsonl").write_bytes(whole)
    write_lines(run / "rollouts.jsonl", [rollout_line(3, 1.0)])
    assert served() == ([], 10)
    (run / "run.json").write_bytes(b"{")
    (problem,), _ = served()
    assert f"{run / 'run.json'} is damaged: " in problem and "line 1 column 2" in problem
    (run / "run.json").write_bytes(described)
    run.rename(tmp_path / "moved")
    assert f"{run} is gone" in served()[0][0] and served()[1] == 10
    (tmp_path / "moved").rename(run)
    assert served() == ([], 10)
    assert capfd.readouterr().err == "", "no traceback in the terminal"


def test_without_the_token_nothing_of_a_run_is_served(run: Path, url: str) -> None:
    for path in ("data", "block/0-0"):
        for headers in ({}, bearer(TOKEN[:-1]), {"Authorization": TOKEN}):
            refused = httpx.get(url + path, headers=headers)
            assert refused.status_code == 401 and "the bearer token is missing or wrong" in refused.text
    page = httpx.get(url)
    assert page.status_code == 200 and run.name not in page.text and "night" not in page.text


def test_what_is_not_there_is_404_and_another_site_is_refused(url: str, client: httpx.Client) -> None:
    for path in ("block/0-9", "block/3-0", "block/x", "config.json", "%2e%2e/etc/passwd"):
        assert client.get(path).status_code == 404
    assert client.get("data", headers={"Host": "evil.example:80"}).status_code == 403
    assert client.get("data", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("data", headers={"Origin": url.rstrip("/")}).status_code == 200


def test_a_page_runs_its_own_scripts_only_and_is_shown_in_no_frame(url: str, client: httpx.Client) -> None:
    first, second = client.get(""), client.get("")
    policies = [page.headers["Content-Security-Policy"] for page in (first, second)]
    for page, policy in zip((first, second), policies, strict=True):
        nonces = set(re.findall(r"<script(?: type=[^ >]+ id=[^ >]+| nonce=\"([^\"]+)\")>", page.text)) - {""}
        assert len(nonces) == 1 and f"script-src 'nonce-{nonces.pop()}'" in policy
        assert "unsafe-inline" not in policy and "frame-ancestors 'none'" in policy
    assert policies[0] != policies[1], "a nonce is used once"
    for response in (first, client.get("data"), httpx.get(f"{url}data"), client.get("nothing")):
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Referrer-Policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]


@needs_chromium
@pytest.mark.slow
def test_in_a_browser_the_page_follows_the_run_and_keeps_what_is_open(
    run: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = pages.asset
    monkeypatch.setattr(pages, "asset", lambda name: read(name).replace("POLL_MS = 2000", "POLL_MS = 50"))
    with open_browser(tmp_path / "chromium") as tab:
        tab.open(url)
        tab.write(TOKEN)
        tab.click("#main button")
        tab.wait("document.querySelector('.facts')")
        tab.errors.clear()  # the browser reports the refusal without a token
        tab.value("sessionStorage.clear()")
        tab.open(f"{url}#token={TOKEN}&view=overview")
        tab.wait("document.querySelector('.facts')")
        assert tab.value("location.hash") == "#view=overview", "the token leaves the address"
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
