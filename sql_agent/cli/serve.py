"""Serve the agent with its database as an OpenAI-compatible endpoint. A chat
completion runs the agent on the last user message and returns the answer;
`sql_agent` in the response has the queries and their rows. MODEL is a run, a
checkpoint, a Hugging Face folder or id, as for `sql-agent chat`."""

from __future__ import annotations

from collections.abc import Sequence

from sql_agent.chat.endpoint import AgentEndpoint
from sql_agent.cli.chat import opened_model
from sql_agent.cli.command import add_task_flags, add_words, address, new_parser, parse_words
from sql_agent.config.endpoints import TokenSettings
from sql_agent.runs.console import Ui
from sql_agent.system.servers import bind, http_url, new_token, serve

_EXAMPLES = """
  sql-agent serve quickstart
  CHAT_TOKEN=secret sql-agent serve quickstart --address 0.0.0.0:8766
  OPENAI_API_BASE=http://127.0.0.1:8766/v1 OPENAI_API_KEY=secret your-client
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("serve", __doc__, _EXAMPLES)
    parser.add_argument("model", metavar="MODEL", help="the model of the agent")
    add_words(parser)
    parser.add_argument("--address", type=address, default=("127.0.0.1", 0), metavar="[HOST:]PORT",
                        help="address of the endpoint; default: 127.0.0.1 and any free port")  # fmt: skip
    add_task_flags(parser)
    arguments = parse_words(parser, argv)
    ui = Ui(wraps=True)
    token = TokenSettings().chat
    with (
        bind(*arguments.address) as sock,
        opened_model(arguments.model, arguments.overrides, arguments.flags, ui) as model,
    ):
        sock.listen()  # the port is open before its address is shown
        key = token.get_secret_value() if token else new_token()
        ui.say(f"{model.name} with the agent: OPENAI_API_BASE={http_url(sock)}/v1 OPENAI_MODEL={arguments.model}")
        ui.say(f"OPENAI_API_KEY{' is CHAT_TOKEN' if token else f'={key}'}   Ctrl-C ends the server.")
        ui.say(model.task.disclaimer)
        serve(AgentEndpoint(arguments.model, model).app(key, sock.getsockname()[0]), sock)
    return 0
