"""Load settings from their sources by precedence, and explain why a setting is refused.

Precedence, strongest first: dotted overrides on the command line (`train.lr=1e-5`), environment variables
(`SQL_AGENT_TRAIN__LR`), the file `.env`, a TOML file given with `--config`, the defaults of each section. The judge's
and the endpoint's conventional names (`TEACHER_MODEL`, `OPENAI_API_BASE`, …) have classes in endpoints.py.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from sql_agent.config.endpoints import (
    AgentOpsSettings,
    AglSettings,
    ChatSettings,
    DatabaseServerSettings,
    EndpointSettings,
    McpSettings,
    StoreSettings,
    TeacherSettings,
)
from sql_agent.config.paths import ENV_FILES
from sql_agent.config.sections import (
    AgentSettings,
    JudgeSettings,
    LocalSettings,
    Section,
    Settings,
    SftSettings,
    TrainSettings,
)
from sql_agent.errors import ConfigError
from sql_agent.system.validation import reason

__all__ = [
    "GENERAL",
    "SECTIONS",
    "AgentOpsSettings",
    "AgentSettings",
    "AglSettings",
    "ChatSettings",
    "DatabaseServerSettings",
    "EndpointSettings",
    "JudgeSettings",
    "LocalSettings",
    "McpSettings",
    "Settings",
    "SftSettings",
    "StoreSettings",
    "TeacherSettings",
    "TrainSettings",
    "flatten",
    "load_settings",
    "public_dump",
    "section_fields",
]

PREFIX = "SQL_AGENT_"
GENERAL = "general"  # what the settings without a section are listed under
Key = tuple[str, ...]

SECTIONS: dict[str, type[Section]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}


def section_fields(section: str) -> dict[str, FieldInfo]:
    """Return the settings of `section` by their dotted names; GENERAL has those without a section."""
    if section == GENERAL:
        return {name: field for name, field in Settings.model_fields.items() if name not in SECTIONS}
    return {f"{section}.{name}": field for name, field in SECTIONS[section].model_fields.items()}


_NAMES = frozenset(name for section in (GENERAL, *SECTIONS) for name in section_fields(section))


@dataclass(frozen=True)
class _Source:
    """Holds the settings of one source by key; `where` names the source to the user."""

    where: str
    values: dict[Key, Any]
    as_variables: bool = False

    def spell(self, key: Key) -> str:
        """Return `key` in the notation of this source."""
        return PREFIX + "__".join(key).upper() if self.as_variables else ".".join(key)


def load_settings(
    overrides: Iterable[str] = (),
    *,
    config_file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    defaults: Sequence[Path] = (),
) -> Settings:
    """Build the settings of a run.

    `overrides` are dotted (`train.lr=1e-5`), `flags` nested dicts from command-line flags; an override wins over a
    flag. `defaults` are TOML files weaker than everything else, the first of them the weakest. Raises ConfigError that
    names each bad key, its value, where it stands and the reason.
    """
    sources = [
        *(_Source(str(path), flatten(_read_toml(path))) for path in (*defaults, config_file) if path is not None),
        *(_variables(str(path), _read_dotenv(path)) for path in ENV_FILES),
        _variables("environment", os.environ),
        _Source("command line", flatten(flags or {}) | _parse_overrides(overrides)),
    ]
    for source in sources:
        for key, value in source.values.items():
            _refuse_unknown(source, key, value)
    try:
        return Settings.model_validate(_nest(source.values for source in sources))
    except ValidationError as error:
        raise _wrong_values(error, sources) from None


def public_dump(settings: Settings) -> dict[str, Any]:
    """Return the resolved settings as JSON-able dicts. They hold no secret: keys live in TeacherSettings only."""
    return settings.model_dump(mode="json")


def _parse_overrides(overrides: Iterable[str]) -> dict[Key, str]:
    """Split `["train.lr=1e-5", "lang=zh"]` into keys and texts, which pydantic converts later; the last of a key wins.

    Raises ConfigError for an item without `=` or with an empty key.
    """
    result: dict[Key, str] = {}
    for item in overrides:
        name, equals, value = item.partition("=")
        key = tuple(name.split("."))
        if not equals or not all(key):
            raise ConfigError(f"override {item!r} is not of the form section.key=value", hint="example: train.lr=1e-5")
        result[key] = value
    return result


def _read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file of settings. Raises ConfigError when it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="check the path given with --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint="correct that line") from None


def flatten(values: Mapping[str, Any], parents: Key = ()) -> dict[Key, Any]:
    """Return the leaves of nested dicts by their keys; an empty dict is a leaf, so that its name is checked too."""
    result: dict[Key, Any] = {}
    for name, value in values.items():
        key = (*parents, name)
        result |= flatten(value, key) if isinstance(value, Mapping) and value else {key: value}
    return result


def _variables(where: str, variables: Mapping[str, str | None]) -> _Source:
    """Return the settings among `variables`; case does not matter in their names."""
    values = {
        tuple(name[len(PREFIX) :].lower().split("__")): value or ""
        for name, value in variables.items()
        if name.upper().startswith(PREFIX)
    }
    return _Source(where, values, as_variables=True)


def _read_dotenv(path: Path) -> dict[str, str | None]:
    try:
        return dotenv_values(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", hint="it must be a text file in UTF-8") from None


def _nest(layers: Iterable[Mapping[Key, Any]]) -> dict[str, Any]:
    """Merge the leaves of `layers`, weakest first, into nested dicts."""
    result: dict[str, Any] = {}
    for key, value in ((key, value) for layer in layers for key, value in layer.items()):
        node = result
        for part in key[:-1]:
            if not isinstance(node.get(part), dict):
                node[part] = {}
            node = node[part]
        if isinstance(value, Mapping):
            node.setdefault(key[-1], {})
        else:
            node[key[-1]] = value
    return result


def _refuse_unknown(source: _Source, key: Key, value: Any) -> None:
    """Raise ConfigError unless `key` is a setting, one of verl's own below verl.config, or a section's empty table."""
    is_section = len(key) == 1 and key[0] in SECTIONS
    if ".".join(key) in _NAMES or key[:2] == ("verl", "config") or (is_section and value == {}):
        return
    name = source.spell(key)
    if is_section:
        example = source.spell((key[0], next(iter(SECTIONS[key[0]].model_fields))))
        raise ConfigError(
            f"{name} is a section, not a setting ({source.where})",
            hint=f"give one of its settings, such as {example}; {_listing(key[0])}",
        )
    raise ConfigError(f"unknown setting {name} ({source.where})", hint=_hint(source, key))


def _hint(source: _Source, key: Key) -> str:
    """Suggest the settings that the unknown `key` resembles; where there is none, list those of its section."""
    nearest = [source.spell(tuple(name.split("."))) for name in _nearest(".".join(key[:2]))]
    if nearest:
        return f"did you mean {' or '.join(nearest)}? {_listing(key[0])}"
    known = SECTIONS[key[0]].model_fields if key[0] in SECTIONS else Settings.model_fields
    return f"known there: {', '.join(known)}; {_listing(key[0])}"


def _nearest(name: str) -> list[str]:
    """Return the settings with the same last part, the most similar first; else the most similar name, if any."""
    last = name.rpartition(".")[2]
    namesakes = sorted(known for known in _NAMES if known.rpartition(".")[2] == last)
    return (
        difflib.get_close_matches(name, namesakes, n=3, cutoff=0.6)
        or namesakes
        or difflib.get_close_matches(name, sorted(_NAMES), n=1, cutoff=0.75)
    )


def _listing(section: str) -> str:
    """Return the command that lists the settings of `section`, or of all where there is no such section."""
    command = f"sql-agent settings {section}" if section in (GENERAL, *SECTIONS) else "sql-agent settings"
    return f"see `{command}`"


def _wrong_values(error: ValidationError, sources: list[_Source]) -> ConfigError:
    """Build the error that names each wrong value, its source and the reason."""
    problems, sections = [], set()
    for problem in error.errors(include_url=False):
        location = tuple(map(str, problem["loc"]))  # longer than a key where one item of a tuple is wrong
        key = location[:1] if location[0] in _NAMES else location[:2]
        given = next(source for source in reversed(sources) if key in source.values)
        problems.append(f"{given.spell(key)}={given.values[key]!r} ({given.where}): {reason(problem)}")
        sections.add(key[0] if len(key) > 1 else GENERAL)
    section = sections.pop() if len(sections) == 1 else ""
    return ConfigError(f"wrong setting: {'; '.join(dict.fromkeys(problems))}", hint=_listing(section))
