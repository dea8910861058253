"""List the settings with type, default, unit and meaning, and how to set them: on
the command line, in the environment, in `.env` or in a TOML file."""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import AliasChoices
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from sql_agent.cli.command import NOT_ADVICE, new_parser
from sql_agent.config.endpoints import EnvironmentSettings
from sql_agent.config.settings import GENERAL, SECTIONS, Settings, as_text, flatten, section_fields
from sql_agent.training.verl.config import GRPO

ENDPOINTS = "endpoints"  # section of the environment variables without the prefix SQL_AGENT_
PAGE_COMMAND = "sql-agent settings --markdown > docs/settings.md"

_HOW = (
    "Set a setting on the command line as `section.name=value` (`train.lr=1e-5`, `lang=zh`), in the environment as "
    "`SQL_AGENT_SECTION__NAME` (`SQL_AGENT_TRAIN__LR=1e-5`), under the same name in the file `.env`, or in a TOML file "
    "given with `--config` (`[train]`, then `lr = 1e-5`). The first of these sources that sets it wins. "
    "`none` removes the value of a later source, and a range is written `0,10`. The backend verl replaces some "
    "defaults with those of `sql_agent/training/verl/grpo.toml`; both are shown."
)
_EXAMPLES = """
  sql-agent settings             all sections
  sql-agent settings judge       one section
"""
_TYPES = {"integer": "int", "number": "float", "boolean": "true | false", "string": "text", "object": "table"}
_BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}


class Entry(NamedTuple):
    """A setting or an environment variable; for a variable, `type` and `default` are ""."""

    name: str
    type: str
    default: str
    description: str


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("settings", __doc__, _EXAMPLES)
    names = (GENERAL, *SECTIONS, ENDPOINTS)
    meaning = f"one of {', '.join(names)}; default: all"
    parser.add_argument("section", nargs="?", choices=names, metavar="SECTION", help=meaning)
    parser.add_argument("--markdown", action="store_true", help=f"print a Markdown page: {PAGE_COMMAND}")
    arguments = parser.parse_args(argv)
    sections = (arguments.section,) if arguments.section else names
    if arguments.markdown:
        print(markdown(sections), end="")
    else:
        _print(sections, Console(highlight=False))
    return 0


def markdown(sections: Sequence[str]) -> str:
    lines = ["# Settings", "", textwrap.fill(_HOW, 120), "", f"`{PAGE_COMMAND}` writes this page. {NOT_ADVICE}"]
    for section in sections:
        lines += ["", f"## {section}", "", _summary(section), ""]
        if section == ENDPOINTS:
            lines += ["| variable | meaning |", "| --- | --- |"]
            lines += [f"| `{entry.name}` | {entry.description} |" for entry in entries(section)]
        else:
            lines += ["| setting | type | default | meaning |", "| --- | --- | --- | --- |"]
            for entry in entries(section):
                kind = entry.type.replace("|", "\\|")
                lines.append(f"| `{entry.name}` | `{kind}` | {entry.default} | {entry.description} |")
    return "\n".join(lines) + "\n"


def entries(section: str) -> Iterator[Entry]:
    if section == ENDPOINTS:
        for variables in EnvironmentSettings.__subclasses__():
            for field in variables.model_fields.values():
                if isinstance(field.validation_alias, AliasChoices):
                    yield Entry(" or ".join(map(str, field.validation_alias.choices)), "", "", field.description or "")
        return
    schema = (Settings if section == GENERAL else SECTIONS[section]).model_json_schema()["properties"]
    verl = flatten(tomllib.loads(GRPO.read_text("utf-8")))
    for name, field in section_fields(section).items():
        default = as_text(field.get_default(call_default_factory=True)) or "empty"
        if (other := verl.get(name)) is not None:
            default += f" (verl: {as_text(other)})"
        yield Entry(name, _type(schema[name.rpartition(".")[2]]), default, field.description or "")


def _print(sections: Sequence[str], console: Console) -> None:
    console.print(Text(_HOW))
    for section in sections:
        console.print()
        console.rule(Text(section, style="bold"), align="left")
        console.print(Text(_summary(section)))
        for entry in entries(section):
            line = Text(entry.name, style="bold")
            if entry.type:
                line.append(f"  {entry.type}, default {entry.default}", style="not bold")
            console.print(line)
            console.print(Padding(Text(entry.description), (0, 0, 0, 4), expand=False))
    console.print(f"\n{NOT_ADVICE}")


def _summary(section: str) -> str:
    if section == ENDPOINTS:
        return "Endpoints, models, keys and tokens, which are set in the environment or `.env` only."
    described = (Settings if section == GENERAL else SECTIONS[section]).__doc__ or ""
    return described.partition(" `load_settings`")[0]


def _type(schema: dict[str, Any]) -> str:
    """Describe type, choices and bounds from the JSON schema of a setting, such as `float > 0`."""
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return " | ".join(schema.get("enum", [schema.get("const")]))
    if "prefixItems" in schema:
        return ",".join(_type(item) for item in schema["prefixItems"])
    if schema["type"] == "array":
        return f"{_type(schema['items'])},…"
    if schema["type"] == "null":
        return "none"
    kind = "path" if schema.get("format") == "path" else _TYPES[schema["type"]]
    bounds = [f"{sign} {schema[bound]:.10g}" for bound, sign in _BOUNDS.items() if bound in schema]
    return " ".join([kind, " and ".join(bounds)]).strip()
