"""Spread a judge's scores: a monotone rescaling of 0..1 onto 0..1, fitted on scores that were seen.

    y = (1 - strength) * x + strength * F(x)

F is the mid-rank empirical distribution: the share of scores below x plus half the share equal to it (the ridit of
Bross 1958, "How to use ridit analysis"). Equal scores stay equal, the order never changes, 0 stays 0 and 1 stays 1.

Worth using when the scores crowd in a narrow band: the rule's fixed 0.1 then outweighs what the judge has to say, and
one far score decides a whole group. Not worth using when the scores are spread already. It cannot create variance
where all answers of a group earn the same. GRPO divides by the standard deviation of a group, so an even stretch of
all rewards changes next to nothing: only the distances within a group in proportion to each other, and to the rule's
0.1, count. Strength 1 keeps the order alone and discards the distances. Where most scores are 0, even a small one is
lifted far. Scaled scores compare only under one scale.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, ValidationError, field_validator

from sql_agent.errors import ConfigError, DataError
from sql_agent.reward.judges.base import Judge, JudgeCase, JudgeWrapper, Verdict
from sql_agent.schemas import Record
from sql_agent.system.files import atomic_write
from sql_agent.system.messages import first_problem

MAX_KNOTS = 101
_Share = Annotated[float, Field(ge=0.0, le=1.0, strict=True, allow_inf_nan=False)]


class Scale(Record):
    """A rescaling as knots (x, y) with straight lines between them: x rises from 0 to 1, y never falls.

    The other fields say where it comes from: file names, how many scores, the strength, and the day as YYYY-MM-DD.
    """

    knots: tuple[tuple[_Share, _Share], ...]
    source: tuple[str, ...] = ()
    scores: int | None = None
    strength: float | None = None
    date: str | None = None

    @field_validator("knots")
    @classmethod
    def _rising(cls, knots: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        if not knots or knots[0][0] != 0.0 or knots[-1][0] != 1.0:
            raise ValueError("x must run from 0 to 1")
        for number, ((x, y), (next_x, next_y)) in enumerate(pairwise(knots), 2):
            if next_x <= x:
                raise ValueError(f"knot {number}: x must rise, but {next_x:g} follows {x:g}")
            if next_y < y:
                raise ValueError(f"knot {number}: y must not fall, but {next_y:g} follows {y:g}")
        return knots

    @classmethod
    def fit(cls, scores: Iterable[float], strength: float, *, source: Sequence[str] = ()) -> Scale:
        """Fit to `scores` (0.0–1.0, at least one) with a strength of 0 (nothing changes) to 1 (ranks only).

        Above 99 distinct values between 0 and 1 the knots follow the curve closely, but not exactly.
        Raises ConfigError when the strength, and DataError when a score is out of range or there is none.
        """
        if not 0.0 <= strength <= 1.0:
            raise ConfigError(f"strength is {strength:g}", hint="use a number from 0 to 1")
        values, counts = np.unique([_checked(score) for score in scores], return_counts=True)
        if not values.size:
            raise DataError("a scale cannot be fitted without scores")
        below = np.cumsum(counts) - counts
        spread = (1 - strength) * values + strength * (below + counts / 2) / counts.sum()
        # The ends are fixed: F gives a score of exactly 0 half its share, which would lift a worthless answer.
        inner = (values > 0.0) & (values < 1.0)
        xs, ys = ([0.0, *column[inner].tolist(), 1.0] for column in (values, spread))
        return cls(
            knots=tuple((xs[i], ys[i]) for i in _knots(xs, ys)),
            source=tuple(source),
            scores=int(counts.sum()),
            strength=strength,
            date=datetime.now(tz=UTC).date().isoformat(),
        )

    def apply(self, score: float) -> float:
        """Return the scaled score, 0.0–1.0. Raises DataError when `score` is not within 0.0–1.0."""
        right = bisect_right(self.knots, _checked(score), key=lambda knot: knot[0])
        x0, y0 = self.knots[right - 1]
        if right == len(self.knots):
            return y0
        x1, y1 = self.knots[right]
        # Rounding could carry a score past the knot above it, and so past a better one.
        return min(y1, y0 + (y1 - y0) * ((score - x0) / (x1 - x0)))

    @classmethod
    def load(cls, path: Path) -> Scale:
        """Read a file that `save` wrote. Raises ConfigError that names the file and what is wrong with it."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"cannot read the scale {path}: {error.strerror}", hint=_HINT) from None
        except ValidationError as error:
            raise ConfigError(f"{path} is no scale: {first_problem(error)}", hint=_HINT) from None

    def save(self, path: Path) -> None:
        """Write as JSON. Raises ConfigError when the file cannot be written."""
        try:
            with atomic_write(path) as unfinished:
                unfinished.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}", hint="name a file in a folder") from None


_HINT = "write one with: python utils/reward_scale.py SOURCE --out FILE"


class ScaledJudge(JudgeWrapper):
    """Any judge with its scores rescaled; `criteria["unscaled"]` of a verdict is the score before.

    Its identity stays the inner judge's: a rescaling keeps the order of the answers, and so the agreement of ranks.
    """

    def __init__(self, judge: Judge, scale: Scale) -> None:
        super().__init__(judge)
        self._scale = scale

    @property
    def name(self) -> str:
        """The inner judge's name with "-scaled": its scores do not compare with unscaled ones."""
        return f"{self._judge.name}-scaled"

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade one case with the inner judge, whose JudgeError passes through."""
        verdict = await self._judge.grade(case)
        criteria = verdict.criteria | {"unscaled": verdict.score}
        return verdict.model_copy(update={"score": self._scale.apply(verdict.score), "criteria": criteria})


def _knots(xs: Sequence[float], ys: Sequence[float]) -> list[int]:
    """Return at most 101 points of a curve, by index: always the one next that the lines so far miss most."""
    chosen = [0, len(xs) - 1]
    while len(chosen) < min(MAX_KNOTS, len(xs)):
        missed = np.abs(np.interp(xs, [xs[i] for i in chosen], [ys[i] for i in chosen]) - ys)
        missed[chosen] = -1.0
        chosen = sorted([*chosen, int(np.argmax(missed))])
    return chosen


def _checked(score: float) -> float:
    if not 0.0 <= score <= 1.0:
        raise DataError(f"{score:g} is not a score", hint="scores lie within 0 to 1")
    return score
