"""Read the folder of a run for its report, also during the run."""

from __future__ import annotations

from pathlib import Path

from sql_agent.errors import DataError
from sql_agent.runs.charts import charts
from sql_agent.runs.rollout_pack import RolloutPack
from sql_agent.runs.run_folder import METRICS, ROLLOUTS, VALIDATION, read_config
from sql_agent.runs.run_info import RunSession, read_sessions
from sql_agent.runs.run_lines import GrowingLines, JsonObject
from sql_agent.tasks.task import load_task

_EMBEDDED = "embedded SmolLM2-135M-Instruct"


class RunReader:
    """What was read of a run so far; `refresh` reads what was appended since."""

    def __init__(self, folder: Path) -> None:
        """Open the run in `folder`.

        Raises DataError when the folder contains no run or a damaged file, and ConfigError when the run's task cannot
        be loaded.
        """
        self.config: JsonObject = read_config(folder)
        self.folder = folder
        self.name = folder.resolve().name
        self.disclaimer = load_task(self.config["task"]).disclaimer
        self.sessions: tuple[RunSession, ...] = ()
        self._starts = 0
        self._start()
        self.refresh()

    def refresh(self) -> None:
        """Read what was appended, or everything again when a resumed run has cut its files.

        Raises DataError for a damaged line or file, or a removed folder, in each call until it is repaired; the lines
        before the damage are read.
        """
        if not self.folder.is_dir():
            raise DataError(f"{self.folder} is gone: it was removed or moved", hint="put the folder back")
        if any(source.was_cut for source in self._sources.values()):
            self._start()
        self.sessions = read_sessions(self.folder)
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
        return self._starts, len(self.steps), len(self.validations), len(self.pack), self.sessions

    def data(self) -> JsonObject:
        """Return what the page shows of the run, without the records of rollouts."""
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
        self.steps: list[JsonObject] = []
        self.validations: list[JsonObject] = []
        self.pack = RolloutPack()

    def _facts(self) -> list[tuple[str, str]]:
        """Return what the page says of the run, each fact as a label and a text."""
        config, train, data = self.config, self.config.get("train", {}), self.config.get("data", {})
        steps = f"{len(self.steps)} / {train.get('steps', '?')}"
        reward = self.steps[-1].get("reward/mean") if self.steps else None
        kept, enqueued, split = (
            sum(int(step.get(f"rollouts/{name}", 0)) for step in self.steps) for name in ("kept", "enqueued", "split")
        )
        made = f"made for the run, {data.get('style', '?')} ({config.get('lang', '?')})"
        recorded = self.sessions[-1].database if self.sessions else ""
        return [
            ("How it ended", self._how_it_ended()),
            ("Steps", steps if reward is None else f"{steps}, reward {reward:.3f}"),
            ("Rollouts kept", f"{kept} / {enqueued}" + (f", {split} split" if split else "")),
            ("Model", config.get("model") or _EMBEDDED),
            ("Questions", str(data.get("train_file") or made)),
            ("Database", recorded or str(config.get("database", {}).get("path") or "sample")),
            ("Judge", str(config.get("judge", {}).get("name", "?"))),
            ("Backend", str(config.get("backend", "?")).replace("auto", "local")),  # a run of verl writes "verl"
            *self._program(),
        ]

    def _how_it_ended(self) -> str:
        nothing = "" if self.steps else ", before its first step"
        if not self.sessions:
            return f"not recorded{nothing}"
        last = self.sessions[-1]
        if last.end is None:
            return f"still running, or its process was killed{nothing}"
        resumed = f", resumed {len(self.sessions) - 1} times" if len(self.sessions) > 1 else ""
        return f"{last.end}{nothing}{resumed}" + (f": {last.detail}" if last.detail else "")

    def _program(self) -> list[tuple[str, str]]:
        if not self.sessions:
            return []
        first, last = self.sessions[0], self.sessions[-1]
        seconds = [session.seconds for session in self.sessions if session.seconds is not None]
        commit, _, changes = (last.commit or "").partition("+")
        return [
            ("Started", first.started.replace("T", " ").replace("+00:00", " UTC")),
            ("Duration", _duration(sum(seconds)) if seconds else "?"),
            ("Commit", commit[:12] + (changes and f"+{changes}") or "installed without a checkout"),
            ("Versions", ", ".join(f"{name} {number}" for name, number in last.versions.items())),
        ]


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"
