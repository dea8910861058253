"""Load settings from all sources, and raise errors that name the source of a wrong setting.

The sources, the strongest first: overrides on the command line (`train.lr=1e-5`), environment variables
(`SQL_AGENT_TRAIN__LR`), the file `.env`, a TOML file given with `--config`, the defaults of each section. For variables
without this prefix (`TEACHER_MODEL`, `OPENAI_API_BASE`, …), see endpoints.py.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from sql_agent.config.settings_schema import CHECKOUT, ENV_FILES, PROJECT, Section
from sql_agent.config.settings_schema import Settings as Settings  # noqa: PLC0414  exported together with load_settings
from sql_agent.errors import ConfigError
from sql_agent.system.files import read_toml
from sql_agent.system.messages import reason

PREFIX = "SQL_AGENT_"
CODE_SETTINGS = ("agent.mcp_command", "agent.mcp_url", "task")  # see _refuse_code
GENERAL = "general"  # stands for the settings without a section

SECTIONS: dict[str, type[Section]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}


def section_fields(section: str) -> dict[str, FieldInfo]:
    """Return the fields of `section`, keyed by dotted name; for GENERAL, the settings without a section."""
    if section == GENERAL:
        return {name: field for name, field in Settings.model_fields.items() if name not in SECTIONS}
    return {f"{section}.{name}": field for name, field in SECTIONS[section].model_fields.items()}


FIELDS = {name: field for section in (GENERAL, *SECTIONS) for name, field in section_fields(section).items()}


@dataclass(frozen=True)
class Source:
    """A source of settings, such as a file or the command line, with its `values` keyed by dotted name.

    `where` names the source in messages. `hint` is the hint of the error about an unknown setting. With `as_variables`,
    the source spells settings as environment variables. A source that somebody else may have written is not `trusted`;
    see `_refuse_code`.
    """

    where: str
    values: dict[str, Any]
    hint: str = ""
    as_variables: bool = False
    trusted: bool = True

    def spell(self, name: str) -> str:
        """Return `name` as this source spells it, such as `SQL_AGENT_TRAIN__LR`."""
        return PREFIX + name.replace(".", "__").upper() if self.as_variables else name


def load_settings(
    overrides: Iterable[str] = (),
    *,
    config_file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    defaults: Iterable[Path] = (),
) -> Settings:
    """Build the settings from all sources. Raises ConfigError for an unknown or wrong setting.

    `overrides`, such as `train.lr=1e-5`, are stronger than `flags`. The keys of `flags` are dotted names or sections.
    `defaults` are TOML files, the weakest first; all other sources are stronger.
    """
    return merge([*map(toml_source, defaults), *read_sources(overrides, config_file=config_file, flags=flags)])


def read_sources(
    overrides: Iterable[str], *, config_file: Path | None = None, flags: Mapping[str, Any] | None = None
) -> list[Source]:
    """Return all sources, the weakest first: `config_file`, `.env` files, environment, command line."""
    sources = [] if config_file is None else [toml_source(config_file)]
    for path in ENV_FILES:
        found = _variables(str(path), read_dotenv(path))
        sources.append(replace(found, trusted=is_trusted(path)))
    sources.append(_variables("environment", os.environ))
    sources.append(Source("command line", flatten(flags or {}) | _parse_overrides(overrides)))
    return sources


def merge(sources: Sequence[Source], *, confirmed_by: Sequence[Source] = ()) -> Settings:
    """Build the settings from `sources`, the weakest first. Raises ConfigError for an unknown or wrong setting.

    Sources in `confirmed_by` may confirm a dangerous setting of an untrusted source; see `_refuse_code`.
    """
    for position, source in enumerate(sources):
        for name, value in source.values.items():
            _refuse_unknown(source, name, value)
        if not source.trusted:
            _refuse_code(source, stronger=sources[position + 1 :], others=[*sources, *confirmed_by])
    try:
        return Settings.model_validate(nest(*(source.values for source in sources)))
    except ValidationError as error:
        raise _wrong_values(error, sources) from None


def variable(name: str) -> str:
    """Return the environment variable `name`, also from `.env`. Raises ConfigError if it is empty or missing."""
    places: list[Mapping[str, str | None]] = [os.environ, *map(read_dotenv, reversed(ENV_FILES))]
    for variables in places:
        if value := variables.get(name):
            return value
    raise ConfigError(f"the variable {name} is not set", hint=f"export {name}=…, or put {name}=… into .env")


def sources_shown(sources: Sequence[Source]) -> list[str]:
    """Return a line for each source except the command line, such as "Settings from .env: train.lr"."""
    return [
        f"Settings from {source.where}: {', '.join(sorted(source.values))}"
        for source in sources
        if source.values and source.where != "command line"
    ]


def public_dump(settings: Settings) -> dict[str, Any]:
    """Return `settings` as nested dicts for JSON, without secrets: all secrets are in endpoints.py."""
    return settings.model_dump(mode="json")


def with_absolute_paths(settings: Settings) -> Settings:
    """Return `settings` with absolute paths, so that commands in other folders find the files of a saved run.

    Default paths stay as they are.
    """
    values = flatten(settings.model_dump())
    for name, value in values.items():
        if isinstance(value, Path) and value != FIELDS[name].default:
            values[name] = value.absolute()
    for name, is_path in (("task", settings.task.endswith(".toml")), ("model", Path(settings.model).is_dir())):
        if values[name] and is_path:
            values[name] = str(Path(values[name]).absolute())
    return Settings.model_validate(nest(values))


def as_text(value: Any) -> str:
    """Format the value of a setting as on the command line; a path in the checkout becomes relative."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0").replace("e-0", "e-")
    if isinstance(value, tuple):
        return ",".join(map(as_text, value))
    if isinstance(value, Path):
        return (value.relative_to(PROJECT) if value.is_relative_to(PROJECT) else value).as_posix()
    return "" if value == {} else str(value)


def flatten(values: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Return the leaves of nested dicts, keyed by dotted name; an empty dict counts as a leaf."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{section}.{key}" if section else key
        result |= flatten(value, name) if isinstance(value, Mapping) and value else {name: value}
    return result


def nest(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge dicts with dotted names into nested dicts, as the inverse of `flatten`; later `layers` are stronger."""
    result: dict[str, Any] = {}
    for name, value in (item for layer in layers for item in layer.items()):
        node = result
        *sections, last = name.split(".")
        for section in sections:
            if not isinstance(node.get(section), dict):
                node[section] = {}
            node = node[section]
        if value == {} and isinstance(node.get(last), dict):
            continue  # an empty TOML table changes no setting
        node[last] = value
    return result


def toml_source(path: Path) -> Source:
    return Source(str(path), flatten(read_toml(path, "check the path given with --config")))


def _parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """Parse texts such as "train.lr=1e-5" into {name: value}; the last value of a repeated name counts."""
    result: dict[str, str] = {}
    for item in overrides:
        name, equals, value = item.partition("=")
        if not equals or not all(name.split(".")):
            raise ConfigError(f"override {item!r} is not of the form section.key=value", hint="example: train.lr=1e-5")
        result[name] = value
    return result


def _variables(where: str, variables: Mapping[str, str | None]) -> Source:
    """Return the settings among `variables`: those whose names start with PREFIX, in upper or lower case."""
    values = {
        name[len(PREFIX) :].lower().replace("__", "."): value or ""
        for name, value in variables.items()
        if name.upper().startswith(PREFIX)
    }
    return Source(where, values, as_variables=True)


def is_trusted(dotenv: Path) -> bool:
    """Return whether `dotenv` is in the checkout, and not in a folder that somebody else may have written."""
    return dotenv.resolve().parent == CHECKOUT


def read_dotenv(path: Path) -> dict[str, str | None]:
    try:
        return dotenv_values(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", hint="the file must be text in UTF-8") from None


def _refuse_unknown(source: Source, name: str, value: Any) -> None:
    """Raise ConfigError unless `name` is a setting, an option below verl.config, or an empty section."""
    if name in FIELDS or name.startswith("verl.config.") or (name in SECTIONS and value == {}):
        return
    if name in SECTIONS:
        example = source.spell(f"{name}.{next(iter(SECTIONS[name].model_fields))}")
        raise ConfigError(
            f"{source.spell(name)} is a section, not a setting ({source.where})",
            hint=f"give one of its settings, such as {example}; {_listing(name)}",
        )
    hint = source.hint or _suggestion(source, name)
    raise ConfigError(f"unknown setting {source.spell(name)} ({source.where})", hint=hint)


def _refuse_code(source: Source, *, stronger: Sequence[Source], others: Sequence[Source]) -> None:
    """Raise ConfigError if the untrusted `source` has a setting that runs code or contacts a server.

    `agent.mcp_command` starts a program, `agent.mcp_url` is a server that receives MCP_TOKEN, and a `task` of the form
    package.module:NAME is imported (NAME.toml is only data). Options of verl can name modules. They are refused in a
    `.env` file, but not in a saved run, because verl continues a run from pickles, which can run code anyway. A setting
    of these kinds is accepted if a trusted source among `stronger` also sets it, or if a trusted source among `others`
    has the same value.
    """
    options = [name for name in source.values if source.as_variables and name.startswith("verl.config")]
    for name in (*CODE_SETTINGS, *options):
        value = source.values.get(name)
        text = str(value or "")
        is_code = ":" in text and not text.endswith(".toml") if name == "task" else text.lower() not in {"", "none"}
        permitted = any(name in each.values for each in stronger if each.trusted) or any(
            each.values.get(name) == value for each in others if each.trusted
        )
        if is_code and not permitted:
            raise ConfigError(
                f"{source.where} sets {source.spell(name)}={text}, which runs code or contacts a server",
                hint=f"if you trust that file, add {name}={shlex.quote(text)} to the command line",
            )


def _suggestion(source: Source, name: str) -> str:
    """Return a hint with the settings whose names are similar to `name`, else with all settings of its section."""
    name = ".".join(name.split(".")[:2])
    section, _, last = name.rpartition(".")
    same = [known for known in FIELDS if known.rpartition(".")[2] == last]
    near = difflib.get_close_matches(name, same or FIELDS, n=3 if same else 1, cutoff=0.6 if same else 0.75) or same
    if near:
        return f"did you mean {' or '.join(map(source.spell, near))}? {_listing(section)}"
    known = SECTIONS.get(section, Settings)
    return f"known there: {', '.join(known.model_fields)}; {_listing(section)}"


def _listing(section: str) -> str:
    return f"see `sql-agent settings {section}`" if section in (GENERAL, *SECTIONS) else "see `sql-agent settings`"


def _wrong_values(error: ValidationError, sources: Sequence[Source]) -> ConfigError:
    problems, sections = [], set()
    for problem in error.errors(include_url=False):
        location = list(map(str, problem["loc"]))  # ends with an index if one item of a tuple is wrong
        name = location[0] if location[0] in FIELDS else ".".join(location[:2])
        source = next(source for source in reversed(sources) if name in source.values)
        problems.append(f"{source.spell(name)}={source.values[name]!r} ({source.where}): {reason(problem)}")
        sections.add(name.rpartition(".")[0] or GENERAL)
    section = sections.pop() if len(sections) == 1 else ""
    return ConfigError(f"wrong setting: {'; '.join(dict.fromkeys(problems))}", hint=_listing(section))
