"""Record the sessions of a run in run.json: versions, inputs, start and end."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from sql_agent.errors import DataError, SqlAgentError
from sql_agent.runs.run_folder import INFO
from sql_agent.schemas import Record
from sql_agent.system.files import read_object, write_text
from sql_agent.system.messages import first_problem

_PACKAGES = ("sql-agent-trainer", "agentlightning", "openai-agents", "litellm", "torch", "transformers", "verl", "vllm")


class RunSession(Record):
    """A session of a run, from start to end; each resume adds a session.

    Times are in UTC, ISO 8601. `end` is None during a session, and after the process was killed. `detail` is the error
    of a failed session. `commit` is None without a checkout. `inputs` is {name: SHA-256}, with names such as "the
    database" and "the training questions".
    """

    started: str
    database: str = ""
    inputs: dict[str, str] = Field(default_factory=dict)
    commit: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    ended: str | None = None
    end: Literal["finished", "interrupted", "failed"] | None = None
    detail: str = ""

    @property
    def seconds(self) -> float | None:
        if self.ended is None:
            return None
        return (datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.started)).total_seconds()

    @property
    def started_at(self) -> str:
        """The start time for people, such as "2026-11-24 18:05:11 UTC"."""
        return self.started.replace("T", " ").replace("+00:00", " UTC")


class _RunInfo(Record):
    sessions: tuple[RunSession, ...] = ()


def read_sessions(folder: Path) -> tuple[RunSession, ...]:
    """Return the sessions of the run in `folder`, oldest first; empty without a run.json."""
    path = folder / INFO
    if not path.exists():
        return ()
    hint = f"remove {path}, which contains only the times and versions of the training"
    values = read_object(path, hint=hint)
    try:
        return _RunInfo.model_validate(values).sessions
    except ValidationError as error:
        raise DataError(
            f"{path} is damaged, or of another version of this program: {first_problem(error)}", hint=hint
        ) from None


def how_it_ended(sessions: Sequence[RunSession]) -> str:
    if not sessions:
        return "not recorded"
    last = sessions[-1]
    if last.end is None:
        return "still running, or its process was killed"
    resumed = f", resumed {len(sessions) - 1} times" if len(sessions) > 1 else ""
    return f"{last.end}{resumed}" + (f": {last.detail}" if last.detail else "")


@contextmanager
def recorded_session(folder: Path, database: str = "", inputs: Mapping[str, str] | None = None) -> Iterator[None]:
    """Record the block as a session of the run in `folder`, with its start, end and versions.

    A KeyboardInterrupt is recorded as the end "interrupted", any other exception as "failed".
    """
    earlier = read_sessions(folder)
    session = RunSession(
        started=_now(), database=database, inputs=dict(inputs or {}), commit=_commit(), versions=installed_versions()
    )
    _write(folder, (*earlier, session))
    end, detail = "finished", ""
    try:
        yield
    except BaseException as error:
        end = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        if not isinstance(error, KeyboardInterrupt):
            detail = error.message if isinstance(error, SqlAgentError) else f"{type(error).__name__}: {error}"
        raise
    finally:
        ended = session.model_copy(update={"ended": _now(), "end": end, "detail": detail})
        try:
            _write(folder, (*earlier, ended))
        except OSError:
            if end == "finished":  # else the block's own error is raised, such as a full disk
                raise


def _write(folder: Path, sessions: tuple[RunSession, ...]) -> None:
    write_text(folder / INFO, _RunInfo(sessions=sessions).model_dump_json(indent=2))


def _now() -> str:
    return datetime.now(tz=UTC).isoformat(timespec="seconds")


def _commit() -> str | None:
    """Return the Git commit of this program's checkout, with "+changes" if tracked files were edited."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=+changes"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()  # noqa: S603
    except (OSError, subprocess.SubprocessError):  # git is not installed, or refuses a checkout of another user
        return None


def installed_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
