"""Read what the pages of the documentation tell people to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
ONLY_PARSED = "<!-- only parsed: "  # above a block that the test of the tutorial does not run, with the reason

_FENCE = re.compile(r"^ *```(\w*)")
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_HEREDOC = re.compile(r"<<'?(\w+)'?")
_LOOP = re.compile(r"for (\w+) in ([^;]+); do (.*?);? done")
_FUNCTION = re.compile(r"^(\w+)\(\) \{ (.*); \}", re.MULTILINE)
_OURS = re.compile(r"(?:[A-Z_]+=\S+ )*(?:sql-agent |python (?:sql_agent|utils|benchmarks)/|scripts/\w+\.sh|bash )")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: the number of its first line, its text, and whether a test may run it."""

    line: int
    language: str
    text: str
    is_run: bool


@dataclass(frozen=True)
class Command:
    """One command of a page, with the variables that are set before it; `where` names page and line.

    A command that the running text names need not have all that it requires: "`sql-agent data import` fills them".
    """

    where: str
    variables: dict[str, str]
    words: list[str]
    is_only_named: bool


def name_of(page: Path) -> str:
    """Return the path of `page` from the project's folder."""
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of `page`."""
    found, lines = [], page.read_text(encoding="utf-8").splitlines()
    start, language = None, ""
    for number, line in enumerate(lines):
        if not (fence := _FENCE.match(line)):
            continue
        if start is None:
            start, language = number + 1, fence[1]
            continue
        above = next((text for text in reversed(lines[: start - 1]) if text.strip()), "")
        text = "\n".join(lines[start:number]) + "\n"
        found.append(Block(start + 1, language, text, not above.startswith(ONLY_PARSED)))
        start = None
    assert start is None, f"{name_of(page)}: the block that begins in line {start} has no end"
    return found


def inline_code(page: Path) -> Iterator[tuple[int, str]]:
    """Yield line number and text of each piece of code in the running text of `page`."""
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield from ((number, code) for code in _INLINE.findall(line))


def commands(page: Path) -> list[Command]:
    """Return the commands of `page`: those of its bash blocks, and ours in its running text.

    A block may define a function in one line; what calls it is given the function's own command.
    """
    found = []
    for block in blocks(page):
        if block.language == "bash":
            functions = dict(_FUNCTION.findall(block.text))
            for number, line in _logical_lines(block):
                if _FUNCTION.match(line):
                    continue
                name, _, words = line.partition(" ")
                text = functions[name].replace('"$@"', words) if name in functions else line
                found += _commands_of(text, f"{name_of(page)}:{number}", is_only_named=False)
    for number, text in inline_code(page):
        if _OURS.match(text):
            found += _commands_of(text, f"{name_of(page)}:{number}", is_only_named=True)
    return found


def _logical_lines(block: Block) -> Iterator[tuple[int, str]]:
    """Yield the lines of a block, continued ones joined, without the texts that commands read behind a <<END."""
    pending, end = "", None
    for number, line in enumerate(block.text.splitlines(), block.line):
        if end is not None:
            end = None if line.strip() == end else end
        elif line.endswith("\\"):
            pending += line[:-1] + " "
        else:
            text, pending = pending + line, ""
            if heredoc := _HEREDOC.search(text):
                end = heredoc[1]
                text = text[: heredoc.start()]
            yield number, text


def _commands_of(text: str, where: str, *, is_only_named: bool) -> list[Command]:
    """Split a line at `;`, `&&` and `|`; a loop is done for each of its values."""
    if loop := _LOOP.search(text):
        bodies = (loop[3].replace(f"${loop[1]}", value) for value in loop[2].split())
        return [command for body in bodies for command in _commands_of(body, where, is_only_named=is_only_named)]
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";|&<>")
    lexer.whitespace_split = True
    found, words = [], []
    for token in [*lexer, ";"]:
        if not set(token) <= set(";|&"):
            words.append(token)
        elif words:
            found.append(_command(words, where, is_only_named=is_only_named))
            words = []
    return found


def _command(words: list[str], where: str, *, is_only_named: bool) -> Command:
    words = [word for word in words if word not in {"...", "…"}]  # which stand for arguments said before
    words = words[: words.index(">")] if ">" in words else words
    count = next((number for number, word in enumerate(words) if not re.match(r"[A-Za-z_]+=", word)), len(words))
    variables = dict(word.split("=", 1) for word in words[:count])
    return Command(where, variables, words[count:], is_only_named)
