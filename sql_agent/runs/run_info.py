"""Record in `run.json` which versions wrote a run, with which inputs, when it ran and how it ended."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from sql_agent.errors import DataError, SqlAgentError
from sql_agent.runs.run_folder import INFO
from sql_agent.schemas import Record
from sql_agent.system.files import atomic_write, read_object
from sql_agent.system.messages import first_problem

_PACKAGES = ("sql-agent-trainer", "agentlightning", "openai-agents", "litellm", "torch", "transformers", "verl", "vllm")

End = Literal["finished", "interrupted", "failed"]


class RunSession(Record):
    """One start of a run; a resumed run has several.

    Times are in UTC, ISO 8601. `end` is None during the run, and stays None when the process was killed. `detail` is
    the error of a failed session. `commit` is that of the program's checkout, None without a checkout. `database` is
    the file of the run's database, or the address of its server without the password. `inputs` are
    SHA-256 digests by name, such as "the database" and "the training questions".
    """

    started: str
    database: str = ""
    inputs: dict[str, str] = Field(default_factory=dict)
    commit: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    ended: str | None = None
    end: End | None = None
    detail: str = ""

    @property
    def seconds(self) -> float | None:
        """Return the duration; None when the end is not known."""
        if self.ended is None:
            return None
        return (datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.started)).total_seconds()


class RunInfo(Record):
    """The sessions of a run, first to last."""

    sessions: tuple[RunSession, ...] = ()


def read_info(folder: Path) -> RunInfo:
    """Return the sessions of the run in `folder`; no session for a run of an older version.

    Raises DataError when the file is damaged, or of a newer version.
    """
    path = folder / INFO
    if not path.exists():
        return RunInfo()
    hint = f"remove {path}: it says no more than when, and by which versions, the run was trained"
    values = read_object(path, hint=hint)
    try:
        return RunInfo.model_validate(values)
    except ValidationError as error:
        raise DataError(
            f"{path} is damaged, or of another version of this program: {first_problem(error)}", hint=hint
        ) from None


@dataclass
class Ending:
    """Set by the code inside `recorded_session` when a signal ended it."""

    interrupted: bool = False


@contextmanager
def recorded_session(folder: Path, database: str = "", inputs: Mapping[str, str] | None = None) -> Iterator[Ending]:
    """Record in `folder` the start of the code inside, its versions, `database` and `inputs`, and how it ends.

    An exception means "failed", a KeyboardInterrupt or `Ending.interrupted` means "interrupted".
    """
    sessions = read_info(folder).sessions
    session = RunSession(
        started=_now(),
        database=database,
        inputs=dict(inputs or {}),
        commit=_commit(),
        versions=installed_versions(),
    )
    _write(folder, (*sessions, session))
    ending, end, detail = Ending(), "failed", ""
    try:
        yield ending
        end = "interrupted" if ending.interrupted else "finished"
    except SqlAgentError as error:
        detail = error.message
        raise
    except BaseException as error:
        end = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        detail = f"{type(error).__name__}: {error}"
        raise
    finally:
        ended = session.model_copy(update={"ended": _now(), "end": end, "detail": detail})
        try:
            _write(folder, (*sessions, ended))
        except OSError:
            if end == "finished":  # otherwise the error that ended the run matters more, such as a full disk
                raise


def _write(folder: Path, sessions: tuple[RunSession, ...]) -> None:
    with atomic_write(folder / INFO) as unfinished:
        unfinished.write_text(RunInfo(sessions=sessions).model_dump_json(indent=2) + "\n", encoding="utf-8")


def _now() -> str:
    return datetime.now(tz=UTC).isoformat(timespec="seconds")


def _commit() -> str | None:
    """Return the commit of the checkout that this file is in, with "+changes" when tracked files were edited."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return None
    try:
        head, changes = (_git(checkout, *command) for command in (("rev-parse", "HEAD"), ("status", "-s", "-uno")))
    except (OSError, subprocess.SubprocessError):  # git is not installed, or refuses a checkout of another user
        return None
    return head + ("+changes" if changes else "")


def _git(checkout: Path, *command: str) -> str:
    done = subprocess.run(  # noqa: S603
        ["git", "-C", str(checkout), *command],  # noqa: S607
        capture_output=True, text=True, check=True, timeout=10,
    )  # fmt: skip
    return done.stdout.strip()


def installed_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that matter; one that is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
