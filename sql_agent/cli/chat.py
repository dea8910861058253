"""Ask one model, or two side by side, questions about the database, and see each
query, its rows and the answer as they come. A model does not see your earlier
questions. A MODEL is a run, a checkpoint, a Hugging Face folder or id, or,
while OPENAI_API_BASE is set, the name of a model at that endpoint. Answers
that you rate or correct become a question file for training."""

from __future__ import annotations

import argparse
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from sql_agent.chat.conversation import MOST_ASKED, ChatModel, ChatModels
from sql_agent.chat.ratings import RatingsFolder
from sql_agent.chat.terminal import Terminal
from sql_agent.chat.web import ChatPage
from sql_agent.cli.command import add_setting_flags, add_task_flags, add_words, address, new_parser, parse_words
from sql_agent.cli.model_choice import NO_BENCHMARK, find_model, known_models, served
from sql_agent.cli.question_sets import evenly_spaced
from sql_agent.config.endpoints import TokenSettings
from sql_agent.config.settings import Settings, load_settings
from sql_agent.errors import ConfigError, DataError
from sql_agent.runs.console import Ui
from sql_agent.system.files import check_writable
from sql_agent.system.process import slow_imports
from sql_agent.system.servers import LOCAL_NAMES, bind, new_token, page_url, serve
from sql_agent.tasks.task import Task, load_task

_EXAMPLES_SHOWN, _EXAMPLE_CHARS = 3, 70

_EXAMPLES = """
  sql-agent chat quickstart              the last checkpoint of a run
  sql-agent chat --web quickstart qwen   two models side by side, on a page
  OPENAI_API_BASE=http://localhost:8000/v1 sql-agent chat --web qwen
  sql-agent train --train-file runs/chat/questions.jsonl
"""


def _parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser("chat", __doc__, _EXAMPLES)
    add = parser.add_argument
    add_words(parser, "MODEL", "one model to ask, or two, and any settings")
    add_setting_flags(parser, {"--lang": "lang"}, "language of prompts and sample; default: that of the question")
    add("--ratings", type=Path, metavar="FOLDER", help="folder to store ratings in; default: runs/chat")
    add("--web", action="store_true", help="serve a page instead of the terminal, until Ctrl-C")
    add("--address", type=address, metavar="[HOST:]PORT", help="address of the page; default: 127.0.0.1 and any free "
        "port")  # fmt: skip
    add("--no-token", action="store_true", help="serve the page without a token, on this machine only; default: the "
        "URL of the page contains CHAT_TOKEN or a new token")  # fmt: skip
    add_task_flags(parser)
    arguments = parse_words(parser, argv)
    if len(arguments.words) > MOST_ASKED:
        parser.error(f"{len(arguments.words)} models are named, but at most two can answer side by side")
    if (arguments.address or arguments.no_token) and not arguments.web:
        parser.error("--address and --no-token need --web")
    if arguments.no_token and arguments.address and arguments.address[0] not in LOCAL_NAMES:
        parser.error("--no-token needs an address that only this machine reaches, such as 127.0.0.1:8765")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse_arguments(argv)
    ui = Ui(wraps=True)
    settings = load_settings(arguments.overrides, flags=arguments.flags)
    task = load_task(settings.task)
    kept = RatingsFolder(arguments.ratings or settings.runs_dir / "chat")
    check_writable(kept.path, "--ratings")
    default = None if arguments.words else find_model(None, None, arguments.overrides, arguments.flags, ui).name
    names = arguments.words or [default]

    def open_model(name: str) -> AbstractContextManager[ChatModel]:
        return opened_model(None if name == default else name, arguments.overrides, arguments.flags, ui)

    with ExitStack() as stack:
        host, port = arguments.address or ("127.0.0.1", 0)
        # The port is bound first, because opening models may take minutes.
        sock = stack.enter_context(bind(host, port)) if arguments.web else None
        models = stack.enter_context(closing(ChatModels(open_model)))
        for name in names:  # opened now, so that a wrong name is an error before the first question
            asked = models.get(name)
        known = list(dict.fromkeys([*names, *known_models(settings.runs_dir)]))
        ui.say(f"Chat with {' and '.join(names)}")
        ui.say(task.disclaimer)
        if sock is not None:
            page = ChatPage(models, names, known, kept, task.disclaimer, _examples(asked.task, asked.settings))
            _serve(page, sock, arguments.no_token, ui)
        else:
            # Ctrl-C ends one question; SIGTERM must raise another exception to end the program.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
            ui.say("Type a question. /help lists the commands, Ctrl-D ends.")
            Terminal(models, names, known, kept, ui).run()
    return 0


@contextmanager
def opened_model(named: str | None, overrides: Sequence[str], flags: Mapping[str, Any], ui: Ui) -> Iterator[ChatModel]:
    """Yield the model `named`, served and with an open database until the context ends."""
    found = find_model(named, None, overrides, {**flags, **NO_BENCHMARK}, ui)
    with slow_imports():
        import_module("sql_agent.agent.rollout")  # otherwise the first question would wait for this import
    settings, task = found.settings, load_task(found.settings.task)
    task.prepare(settings, ui.say)
    with task.databases(settings) as databases:
        databases.check([None])
        with served(found, databases, ui) as endpoint:
            yield ChatModel(named or found.name, task, settings, endpoint, databases, flags.get("lang"))


def _serve(page: ChatPage, sock: socket.socket, no_token: bool, ui: Ui) -> None:
    sock.listen()  # the port is open before its address is shown
    given = TokenSettings().chat
    token = None if no_token else given.get_secret_value() if given else new_token()
    ui.say(page_url(sock, None if given else token))
    ui.say("Ctrl-C ends the server.")
    serve(page.app(token, sock.getsockname()[0]), sock)


def _examples(task: Task, settings: Settings) -> list[str]:
    """Return example questions; [] if the task has no question file for the database."""
    try:
        questions = task.questions(settings, "val")
    except (ConfigError, DataError):
        return []
    short = [question for question in questions if len(question.question) <= _EXAMPLE_CHARS]
    return [question.question for question in evenly_spaced(short, _EXAMPLES_SHOWN)]
