"""Define the errors that this project raises on purpose.

A command prints the message and the hint of an error on stderr, and ends with exit code 2; see `cli/command.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sql_agent.schemas import Usage


class SqlAgentError(Exception):
    """Base of all errors raised on purpose: `message` says what is wrong and where, `hint` what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(SqlAgentError, ValueError):
    """A setting is missing, wrong or contradicts another."""


class DatabaseFileError(SqlAgentError, ValueError):
    """The database is missing, empty, or lacks tables or columns that the task needs."""


class QueryError(SqlAgentError, ValueError):
    """A statement was refused, failed or timed out. `kind` is a stable word that programs can compare."""

    def __init__(self, kind: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class DataError(SqlAgentError, ValueError):
    """A question file or a sample record is malformed."""


class ModelError(SqlAgentError, ValueError):
    """A model folder cannot be loaded, or lacks a chat template or an end token."""


class JudgeError(SqlAgentError, RuntimeError):
    """A judge returned no score. The rollout is dropped and counted, not scored 0.

    `usage` is the cost of the failed grading.
    """

    def __init__(self, message: str, *, hint: str | None = None, usage: Usage | None = None) -> None:
        super().__init__(message, hint=hint)
        self.usage = usage


class JudgeRefusedError(JudgeError):
    """The judging model, or a content filter of its provider, declined to grade; a retry would not help."""


class JudgeCutOffError(JudgeError):
    """The judging model's reply exceeded its token limit, even after the limit was raised."""


class TrainingError(SqlAgentError, RuntimeError):
    """A run cannot start or cannot continue."""


class GpuMemoryError(TrainingError):
    """An update on the GPU ran out of memory.

    `smaller` has settings, by dotted name, with which an update needs less memory. It is empty if no setting helps.
    """

    def __init__(self, message: str, *, hint: str, smaller: Mapping[str, object]) -> None:
        super().__init__(message, hint=hint)
        self.smaller = smaller


class PreflightError(TrainingError):
    """A check before training failed, such as a model call through LLM proxy and store that returned no triplet."""


class NoTripletsError(TrainingError):
    """A training step ended without any triplet (prompt, response, reward) to train on."""


class ResumeError(TrainingError):
    """The run to resume has other settings than the command line, or no saved state."""
