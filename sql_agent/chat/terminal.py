"""Chat in the terminal: read questions and commands, show queries and answers, store ratings."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from sql_agent.chat.citations import Citation
from sql_agent.chat.conversation import (
    MOST_ASKED,
    Answered,
    ChatModel,
    ChatModels,
    Failed,
    QueryAnswered,
    QuerySent,
    ask,
    one_line,
    run_statement,
)
from sql_agent.chat.ratings import Mark, RatingsFolder
from sql_agent.errors import ConfigError, SqlAgentError
from sql_agent.runs.console import Ui
from sql_agent.runs.rollout_view import show_field, show_query, show_result
from sql_agent.schemas import Outcome
from sql_agent.system.messages import first_of, printable

_PROMPT = "\n> "
_NARROWEST = 60  # minimum width, in columns, for two answers side by side
_SOURCES_SHOWN = 8
_HELP = (
    ("/model NAME [NAME]", "ask another model, or two side by side"),
    ("/models", "list some models; /model accepts any MODEL of `sql-agent evaluate`"),
    ("/and TEXT", "ask the last question again, with TEXT added to it"),
    ("/sql STATEMENT", "run a SQL statement; a correction can cite its rows"),
    ("/up [N], /down [N]", "rate the last answer, or the answer of model N, as right or wrong"),
    ("/correct FACTS", "give the right answer: only the facts, separated by ;"),
    ("/thoughts", "show what a thinking model wrote before the replies of the last answers"),
    ("/undo", "withdraw the ratings of the last answers"),
    ("/quit", "end the program; Ctrl-D, or Ctrl-C twice, does the same"),
)


class Terminal:
    """Asks one or two models (`names`) what a user types; /models lists the models `known`."""

    def __init__(self, models: ChatModels, names: Sequence[str], known: Sequence[str], kept: RatingsFolder, ui: Ui):
        self._models = models
        self._names = list(names)
        self._known = known
        self._kept = kept
        self._ui = ui
        self._last: list[tuple[ChatModel, Answered]] = []
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": self._help,
            "/model": self._switch,
            "/models": self._list,
            "/and": self._follow,
            "/sql": self._run_statement,
            "/up": lambda rest: self._rate("up", rest),
            "/down": lambda rest: self._rate("down", rest),
            "/correct": lambda rest: self._rate("corrected", correction=rest),
            "/thoughts": self._show_thoughts,
            "/undo": lambda _: self._rate("withdrawn"),
        }

    def run(self) -> None:
        """Read lines until the end of the input, /quit, or a second Ctrl-C; one Ctrl-C stops a question."""
        is_interrupted = False
        while True:
            try:
                line = input(_PROMPT if sys.stdin.isatty() else "").strip()
                is_interrupted = False
                if line == "/quit":
                    return
                self._take(line)
            except EOFError:
                return
            except KeyboardInterrupt:
                if is_interrupted:
                    return
                is_interrupted = True
                self._ui.say("\nStopped. Ctrl-C again ends the program.")
            except SqlAgentError as error:
                self._ui.say(f"error: {one_line(error)}")

    def _take(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if not word.startswith("/"):
            if line:
                self._ask(line)
        elif word in self._commands:
            self._commands[word](rest.strip())
        else:
            raise ConfigError(f"there is no command {word}", hint="/help lists the commands")

    def _ask(self, text: str) -> None:
        self._last = []
        for name in self._names:
            if len(self._names) > 1:
                self._ui.console.rule(Text(name))
            model = self._models.get(name)
            with self._ui.status(f"Asking {model.name}"):
                asyncio.run(self._show(text, model))
        if len(self._last) > 1:
            self._show_side_by_side()

    async def _show(self, text: str, model: ChatModel) -> None:
        console = self._ui.console
        async for event in ask(text, model):
            match event:
                case QuerySent(number, sql):
                    show_query(number, sql, console)
                case QueryAnswered(_, call):
                    show_result(call.answer, console)
                case Answered():
                    self._show_answer(event)
                    self._last.append((model, event))
                case Failed(message):
                    show_field(console, "Failed", message)

    def _show_answer(self, answered: Answered) -> None:
        console = self._ui.console
        show_field(console, "Answer", answered.answer or "(none)", [source.text for source in answered.sources])
        if answered.outcome is not Outcome.ANSWERED:
            show_field(console, "Model", answered.outcome.message)
        if answered.unreadable:
            show_field(console, "It wrote", answered.unreadable)
        if answered.answer:
            show_field(console, "Sources", _sources_text(answered.sources))
        if answered.thoughts:
            show_field(console, "Thoughts", f"{len(answered.thoughts)}; /thoughts shows them")

    def _show_side_by_side(self) -> None:
        if self._ui.console.width < _NARROWEST:
            return
        table, cells = Table(expand=True), []
        for model, answered in self._last:
            table.add_column(Text(model.name), ratio=1)
            cells.append(cell := Text(printable(answered.answer) or "(none)"))
            cell.highlight_words([source.text for source in answered.sources], "bold green", case_sensitive=False)
        table.add_row(*cells)
        table.add_row(
            *(f"queries: {len(answered.calls)}, seconds: {answered.seconds:.1f}" for _, answered in self._last)
        )
        self._ui.console.print(table)

    def _help(self, _rest: str) -> None:
        for command, meaning in _HELP:
            self._ui.say(f"{command}: {meaning}")

    def _switch(self, rest: str) -> None:
        names = [rest] if rest in self._known else rest.split()  # the default model has a name with spaces
        if not 1 <= len(names) <= MOST_ASKED:
            raise ConfigError("/model takes one name, or two", hint="/models lists some models")
        for name in names:
            self._ui.say(f"Now asking {self._models.get(name).name}")
        self._names = names

    def _follow(self, rest: str) -> None:
        if not self._last or not rest:
            raise ConfigError("/and needs an earlier question and a TEXT", hint="ask a question first, then /and TEXT")
        self._ask(f"{self._last[0][1].question.question}\n{rest}")

    def _run_statement(self, rest: str) -> None:
        if not self._last:
            raise ConfigError("there is no answer to correct", hint="ask a question first")
        call = asyncio.run(run_statement(rest, self._last[0][0]))
        self._last = [(model, answered.with_call(call)) for model, answered in self._last]
        show_query(len(self._last[0][1].calls), rest, self._ui.console)
        show_result(call.answer, self._ui.console)

    def _show_thoughts(self, _rest: str) -> None:
        thoughts = [(model.name, thought) for model, answered in self._last for thought in answered.thoughts]
        if not thoughts:
            raise ConfigError("the last answers have no thoughts", hint="ask a model that thinks; see agent.thinking")
        for name, thought in thoughts:
            show_field(self._ui.console, "Thought", f"{name}: {thought}" if len(self._last) > 1 else thought)

    def _list(self, _rest: str) -> None:
        for name in self._known:
            self._ui.say(f"{name}{' (asked now)' if name in self._names else ''}")

    def _rate(self, mark: Mark, which: str = "", *, correction: str = "") -> None:
        """Rate the answer with the number `which`; for "", rate all answers to the last question."""
        if not self._last:
            raise ConfigError("there is no answer to rate", hint="ask a question first")
        numbered = {str(number): each for number, each in enumerate(self._last, 1)}
        hint = " or ".join(f"/{mark} {number}" for number in numbered)
        if which and which not in numbered:
            raise ConfigError(f"there is no answer {which}", hint=hint)
        if not which and mark in {"up", "down"} and len(numbered) > 1:
            raise ConfigError("two models answered, and the rating names neither", hint=hint)
        rated = [numbered[which]] if which else self._last
        for model, answered in rated:
            self._kept.rate(model.name, answered, mark, correction)
        self._ui.say(f"Stored in {self._kept.path}")


def _sources_text(sources: Sequence[Citation]) -> str:
    """Return each cited passage with its cell, such as "tablet (query 1, row 1, form)"."""
    if not sources:
        return "no row contains a text of the answer"
    said = [f"{source.text} (query {source.query}, row {source.row}, {source.column})" for source in sources]
    return "; ".join(first_of(said, _SOURCES_SHOWN))
