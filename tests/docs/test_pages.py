"""What the documentation tells people to type exists: commands, flags, settings, variables, files and links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sql_agent.config.settings import SECTIONS
from tests.support.documents import PAGES, blocks, commands, inline_code, name_of
from tests.support.processes import ROOT
from tests.support.understood import FOLDERS, exists, fault_of, flags, is_setting, is_variable

SETTING = re.compile(rf"(?:{'|'.join(SECTIONS)})\.(?!parquet|jsonl?\b|md\b|py\b|sh\b)[a-z][\w.]*(?:=\S*)?")
FILE = re.compile(r"(?:[a-z0-9_.-]+/)+[a-z0-9_.-]*\.(?:py|sh|md|toml|jinja)|[a-z0-9_]+\.(?:py|sh)")
FOLDER = re.compile(rf"(?:{'|'.join(FOLDERS)})/[a-z0-9_/.-]*")
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?==|$)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
# The changelog and the lab book name what was removed since.
OF_TODAY = [page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "lab"]
OF_PAGE = pytest.mark.parametrize("page", OF_TODAY, ids=name_of)
PAIRS = [page for page in PAGES if page.with_suffix(".zh-CN.md").exists()]
MOST_LINES = {
    "README.md": 90, "README.zh-CN.md": 90, "CHANGELOG.md": 80, "CONTRIBUTING.md": 95,
    "docs/faults.md": 60, "docs/judge.md": 140, "docs/questions.md": 162, "docs/results.md": 130,
}  # fmt: skip

WRONG = f"""\
```bash
sql-agent trane                                # no such command
sql-agent train --steps 3                      # no such flag
sql-agent ask -n 2 train.learning_rate=1 \\
  "What treats gout?"                          # no such setting
sql-agent train train.lr=fast                  # no such value
python benchmarks/nothing.py                   # no such file
python benchmarks/question_variety.py --nothing
SQL_AGENT_TRAIN__NOTHING=1 sql-agent train     # no such variable
scripts/load_mysql.sh mysql://root@host/db --nothing
pip install ".[nothing]"
```
Text with `train.nothing`, `agent.max_turns=many`, `--nothing`, `sql_agent/nothing.py`, `{"NO_SUCH"}_VARIABLE=1` and
`sql-agent data nothing`.
"""


@OF_PAGE
def test_every_command_is_understood(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not wrong_commands(page)


@OF_PAGE
def test_every_setting_flag_variable_and_file_in_the_text_exists(page: Path) -> None:
    assert not wrong_names(page)


def test_what_does_not_exist_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(WRONG, encoding="utf-8")
    assert [int(fault.split(":")[1]) for fault in wrong_commands(page)] == [2, 3, 5, 6, 7, 8, 9, 10, 11, 14]
    assert len(wrong_names(page)) == 5


def test_the_changelog_calls_removed_only_what_is_removed() -> None:
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page[page.index("### Removed") : page.index("### Changed")], re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([a-z]+\.[a-z_0-9]+)`", row)]
    assert len(names) > 20
    assert [name for name in names if is_setting(name)] == []


@pytest.mark.parametrize("name", MOST_LINES)
def test_the_pages_that_a_newcomer_reads_stay_short(name: str) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= MOST_LINES[name]


@pytest.mark.parametrize("page", [*OF_TODAY, *(ROOT / "docs" / "lab").glob("*.md")], ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    wrong = []
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if "://" not in target and not (linked.exists() and (not anchor or anchor in anchors(linked))):
            wrong.append(target)
    assert not wrong


@pytest.mark.parametrize("page", PAIRS, ids=name_of)
def test_both_languages_have_the_same_sections_commands_and_settings(page: Path) -> None:
    english, chinese = (skeleton(each) for each in (page, page.with_suffix(".zh-CN.md")))
    assert english == chinese


def test_the_index_names_every_page() -> None:
    for index in ("README.md", "README.zh-CN.md"):
        named = set(LINK.findall((ROOT / "docs" / index).read_text(encoding="utf-8")))
        pages = {page.name for page in (ROOT / "docs").glob("*.md") if not page.name.endswith(".zh-CN.md")}
        assert {name.replace(".zh-CN", "") for name in named} >= pages - {"README.md"}


def test_the_messages_by_which_troubleshooting_goes_are_those_of_the_program() -> None:
    program = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "sql_agent").rglob("*.py")).lower()
    program += (ROOT / "sql_agent/runs/templates/zh.json").read_text(encoding="utf-8").lower()
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").lower()
    messages = [part.strip() for quoted in re.findall(r'"([^"\n]+)"', page) for part in quoted.split("…")]
    assert len(messages) > 8
    assert [text for text in messages if text not in program] == ["cuda out of memory"]


def wrong_commands(page: Path) -> list[str]:
    faults = ((command, fault_of(command)) for command in commands(page))
    return [f"{command.where}: {' '.join(command.words)}: {fault}" for command, fault in faults if fault]


def wrong_names(page: Path) -> list[str]:
    wrong = []
    for number, code in inline_code(page):
        for word in (word.rstrip(",;") for word in code.split()):
            is_wrong = (
                (SETTING.fullmatch(word) and not FILE.fullmatch(word) and not is_setting(word))
                or (word.startswith("--") and word.partition("=")[0] not in flags())
                or ((FILE.fullmatch(word) or FOLDER.fullmatch(word)) and not exists(word))
                or ((variable := VARIABLE.match(word)) and not is_variable(variable[0]))
            )
            if is_wrong:
                wrong.append(f"{name_of(page)}:{number}: {word}")
    return wrong


def anchors(page: Path) -> set[str]:
    """The names that links to the headings of `page` have."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def skeleton(page: Path) -> tuple[list[str], list[tuple[str, ...]], list[str]]:
    """What two languages of a page share: levels of headings, commands, and settings in the text."""
    levels = re.findall(r"^(#+) ", page.read_text(encoding="utf-8"), re.MULTILINE)
    settings = {word.partition("=")[0] for _, code in inline_code(page) for word in code.split() if SETTING.match(word)}
    fenced = [block for block in blocks(page) if block.language == "bash"]
    typed = [tuple(re.sub(r"\s+#.*", "", line).strip() for line in block.text.splitlines()) for block in fenced]
    return levels, typed, sorted(settings)
