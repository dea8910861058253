"""Read the folder of a run for its report, also during the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sql_agent.errors import DataError
from sql_agent.runs.charts import charts
from sql_agent.runs.rollout_pack import RolloutPack
from sql_agent.runs.run_folder import METRICS, ROLLOUTS, VALIDATION, read_config
from sql_agent.runs.run_info import RunInfo, read_info
from sql_agent.runs.run_lines import GrowingLines, JsonObject
from sql_agent.tasks.task import load_task

_EMBEDDED = "embedded SmolLM2-135M-Instruct"

Fact = tuple[str, str]  # label and text


class RunReader:
    """What was read of a run so far; `refresh` reads what was appended since."""

    info: RunInfo
    pack: RolloutPack

    def __init__(self, folder: Path) -> None:
        """Open the run in `folder`.

        Raises DataError when the folder contains no run or a damaged file, and ConfigError when the run's task cannot
        be loaded.
        """
        self.config: JsonObject = read_config(folder)
        self.folder = folder
        self.disclaimer = load_task(self.config["task"]).disclaimer
        self._starts = 0
        self._start()
        self.refresh()

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.folder.resolve().name

    def refresh(self) -> None:
        """Read what was appended, or everything again when a resumed run has cut its files.

        Raises DataError that names a damaged line or file, or a removed folder, in each call until it is repaired; the
        lines before the damage are read.
        """
        if not self.folder.is_dir():
            raise DataError(f"{self.folder} is gone: it was removed or moved", hint="put it back")
        if any(source.was_cut for source in self._sources.values()):
            self._start()
        self.info = read_info(self.folder)
        self.steps += self._sources[METRICS].new()
        self.validations += self._sources[VALIDATION].new()
        rollouts = self._sources[ROLLOUTS]
        for line in rollouts.new():
            try:
                self.pack.add(line)
            except (LookupError, TypeError, AttributeError, ValueError):
                raise rollouts.damaged("not a rollout as this version writes it") from None

    @property
    def version(self) -> object:
        """A value that changes whenever `data` does."""
        return self._starts, len(self.steps), len(self.validations), len(self.pack), self.info

    def data(self) -> JsonObject:
        """Return what the page shows of the run besides the records."""
        return {
            "name": self.name,
            "facts": self._facts(),
            "charts": charts(self.steps, self.validations),
            "config": self.config,
            **self.pack.index(),
        }

    def _start(self) -> None:
        self._starts += 1
        self._sources = {name: GrowingLines(self.folder / name) for name in (METRICS, VALIDATION, ROLLOUTS)}
        self.info = RunInfo()
        self.steps: list[JsonObject] = []
        self.validations: list[JsonObject] = []
        self.pack = RolloutPack()

    def _facts(self) -> list[Fact]:
        config, train = self.config, self.config.get("train", {})
        steps = f"{len(self.steps)} / {train.get('steps', '?')}"
        reward = self.steps[-1].get("reward/mean") if self.steps else None
        return [
            ("How it ended", how_it_ended(self.info, self.steps)),
            ("Steps", steps if reward is None else f"{steps}, reward {reward:.3f}"),
            ("Rollouts kept", _kept(self.steps)),
            ("Model", config.get("model") or _EMBEDDED),
            ("Questions", _questions(config)),
            ("Database", _database(config, self.info)),
            ("Judge", str(config.get("judge", {}).get("name", "?"))),
            ("Backend", str(config.get("backend", "?")).replace("auto", "local")),  # "auto" for verl is written as verl
            *_program(self.info),
        ]


def how_it_ended(info: RunInfo, steps: Sequence[Mapping[str, Any]]) -> str:
    """Describe how a run ended, as far as its folder records it."""
    nothing = "" if steps else ", before its first step"
    if not info.sessions:
        return f"not recorded{nothing}"
    last = info.sessions[-1]
    if last.end is None:
        return f"still running, or its process was killed{nothing}"
    resumed = f", resumed {len(info.sessions) - 1} times" if len(info.sessions) > 1 else ""
    return f"{last.end}{nothing}{resumed}" + (f": {last.detail}" if last.detail else "")


def _database(config: Mapping[str, Any], info: RunInfo) -> str:
    """Return the database of the last session; of a run that recorded none, the one of its settings."""
    recorded = info.sessions[-1].database if info.sessions else None
    return recorded or str(config.get("database", {}).get("path") or "sample")


def _program(info: RunInfo) -> list[Fact]:
    if not info.sessions:
        return []
    first, last = info.sessions[0], info.sessions[-1]
    seconds = [session.seconds for session in info.sessions if session.seconds is not None]
    return [
        ("Started", first.started.replace("T", " ").replace("+00:00", " UTC")),
        ("Duration", _duration(sum(seconds)) if seconds else "?"),
        ("Commit", _short(last.commit) if last.commit else "installed without a checkout"),
        ("Versions", ", ".join(f"{name} {number}" for name, number in last.versions.items())),
    ]


def _short(commit: str) -> str:
    number, _, changes = commit.partition("+")
    return number[:12] + (f"+{changes}" if changes else "")


def _questions(config: Mapping[str, Any]) -> str:
    data = config.get("data", {})
    made = f"made for the run, {data.get('style', '?')} ({config.get('lang', '?')})"
    return str(data.get("train_file") or made)


def _kept(steps: Sequence[Mapping[str, Any]]) -> str:
    kept, enqueued, split = (
        sum(int(step.get(f"rollouts/{name}", 0)) for step in steps) for name in ("kept", "enqueued", "split")
    )
    return f"{kept} / {enqueued}" + (f", {split} split" if split else "")


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"
