"""Look at a judge's scores and spread them: sql-agent judge rescale SOURCE... [--out scale.json]"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sql_agent.cli.parser import help_text
from sql_agent.errors import ConfigError, DataError
from sql_agent.reward.judges.rescaling import Scale
from sql_agent.runs.console import open_console
from sql_agent.schemas import Drop
from sql_agent.system.messages import first_problem

DESCRIPTION = """\
Look at a judge's scores, and write a scale that spreads them: judge.scale=FILE.

A SOURCE is a run's folder, its rollouts.jsonl, or a JSONL file of
{"score": 0.0-1.0, "group": "optional"}, such as the gradings of
`sql-agent judge evaluate`, where question_id is the group.

Worth using when the scores crowd in a narrow band. Not when they are spread
already, and it cannot create variance where all answers of a group earn the
same: that needs other questions, a higher temperature or a finer judge.
Strength 1 keeps only the order of the scores and discards their distances.
GRPO divides by the standard deviation of a group, so a wider spread alone is no
gain: what changes is the proportion of the distances within a group, and how
much the judge weighs beside the rule's fixed 0.1."""

EXAMPLES = """\
  sql-agent judge rescale runs/quickstart                  only shows
  sql-agent judge rescale runs/quickstart --out scale.json
  sql-agent train judge.scale=scale.json
"""

_BAR = 40  # characters for the fullest bin
_MAX_BINS = 100
_QUANTILES = (0, 5, 25, 50, 75, 95, 100)
_WANTED = "give a run's folder, its rollouts.jsonl, or a JSONL file with a score a line"


class _Reward(BaseModel):
    rule: float
    judge: float = Field(ge=0.0, le=1.0)
    criteria: dict[str, float] = Field(default_factory=dict)


class _Record(BaseModel):
    reward: _Reward | None


class _Rollout(BaseModel):
    """Holds the used part of a line that `RunLog.rollouts` wrote."""

    step: int
    mode: str
    group: str
    dropped: Drop | None
    record: _Record | None


class _Line(BaseModel):
    """Holds a line of a plain file or of an evaluation's gradings."""

    score: float = Field(ge=0.0, le=1.0, strict=True)
    criteria: dict[str, float] = Field(default_factory=dict)
    group: str | None = None
    question_id: str | None = None


@dataclass(frozen=True)
class Score:
    """Holds the judge's score of one answer, the rule's part beside it (0 in a plain file), and its group, if any."""

    score: float
    rule: float
    group: tuple[str, ...] | None


@dataclass
class Scores:
    """Collects the scores of the sources in order, and counts the lines left out by reason."""

    kept: list[Score] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    unscaled: int = 0  # scores that were rescaled already

    def add(self, score: float, criteria: Mapping[str, float], rule: float, group: tuple[str, ...] | None) -> None:
        """Keep a score, as it was before a rescaling, because a new scale replaces the old one."""
        self.unscaled += "unscaled" in criteria
        self.kept.append(Score(criteria.get("unscaled", score), rule, group))


def main(argv: Sequence[str] | None = None) -> int:
    """Show the scores and what a rescaling does to them; write it when --out is given."""
    parser = argparse.ArgumentParser(prog="sql-agent judge rescale", **help_text(DESCRIPTION, EXAMPLES))
    add_arguments(parser)
    return run(parser.parse_args(argv))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sql-agent judge rescale`."""
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="a run's folder or a JSONL file")
    parser.add_argument("--bins", type=int, default=20, metavar="N", help="bars of the histogram (default: 20)")
    parser.add_argument("--strength", type=float, default=0.5, metavar="X",
                        help="0 changes nothing, 1 keeps ranks only (default: 0.5)")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the scale here as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Show the scores and write the scale, as `main` does, for a parsed command line."""
    if not 1 <= arguments.bins <= _MAX_BINS:
        raise ConfigError(f"--bins is {arguments.bins}", hint=f"use a number from 1 to {_MAX_BINS}")
    files = source_files(arguments.sources)
    if arguments.out and arguments.out.resolve() in [file.resolve() for file in files]:
        raise ConfigError(f"--out would overwrite the source {arguments.out}", hint="name another file")
    scores = read(files)
    scale = Scale.fit([s.score for s in scores.kept], arguments.strength, source=[file.name for file in files])
    console = open_console()
    show_scores(scores, scale, arguments.bins, console)
    show_effect(scores.kept, scale, console)
    if arguments.out:
        scale.save(arguments.out)
        console.print(f"Wrote {escape(str(arguments.out))}: {len(scale.knots)} knots.", soft_wrap=True)
    else:
        console.print("Nothing was written; --out FILE keeps this scale.")
    return 0


def source_files(sources: Sequence[Path]) -> list[Path]:
    """Return the file of each source, in a run's folder rollouts.jsonl. Raises DataError when one is given twice."""
    files = [source / "rollouts.jsonl" if source.is_dir() else source for source in sources]
    for file, times in Counter(file.resolve() for file in files).items():
        if times > 1:
            raise DataError(f"{file} is given {times} times, so its scores would count as often", hint="name it once")
    return files


def read(files: Sequence[Path]) -> Scores:
    """Read the scores of all files; the same group in two files is two groups. Raises DataError that names the line."""
    scores = Scores()
    for file in files:
        try:
            lines = file.read_bytes().split(b"\n")
        except OSError as error:
            raise DataError(f"cannot read {file}: {error.strerror}", hint=_WANTED) from None
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                _add(json.loads(line), str(file.resolve()), scores)
            except ValidationError as error:
                raise DataError(f"{file}, line {number}: {first_problem(error)}", hint=_WANTED) from None
            except (ValueError, RecursionError):
                if number < len(lines) or not line.startswith(b'{"step"'):
                    raise DataError(f"{file}, line {number}: not JSON", hint=_WANTED) from None
                scores.left_out["cut off at the end of the file"] += 1
    if not scores.kept:
        reasons = "".join(f"; {count} × {reason}" for reason, count in scores.left_out.items())
        raise DataError(f"no score in {', '.join(map(str, files))}{reasons}", hint=_WANTED)
    return scores


def _add(line: Any, file: str, scores: Scores) -> None:
    if isinstance(line, dict) and "rollout_id" in line:
        _add_rollout(_Rollout.model_validate(line), file, scores)
    elif isinstance(line, dict) and "error" in line and "score" not in line:
        scores.left_out["that the judge failed on"] += 1
    else:
        plain = _Line.model_validate(line)
        group = plain.question_id if plain.group is None else plain.group
        scores.add(plain.score, plain.criteria, 0.0, None if group is None else (file, group))


def _add_rollout(rollout: _Rollout, file: str, scores: Scores) -> None:
    reward = rollout.record.reward if rollout.record else None
    if rollout.dropped is not None or reward is None:
        scores.left_out["dropped"] += 1
    elif rollout.mode != "train":
        # Validation is greedy with one answer a question, so its scores are not those that training compares.
        scores.left_out["of validation"] += 1
    else:
        scores.add(reward.judge, reward.criteria, reward.rule, (file, str(rollout.step), rollout.group))


def show_scores(scores: Scores, scale: Scale, bins: int, console: Console) -> None:
    """Print how many scores there are, their histogram, their quantiles, and how many are 0 or 1."""
    values = np.array([s.score for s in scores.kept])
    left_out = ", ".join(f"{count} {reason}" for reason, count in scores.left_out.items()) or "none"
    console.print(f"Scores: {len(values)}; left out: {left_out}.", soft_wrap=True)
    if scores.unscaled:
        console.print(f"{scores.unscaled} were rescaled already; their scores before that are used.", soft_wrap=True)
    # Divided, not summed up, because of rounding: 0.6 must fall into the bin that starts at 0.6.
    counts, edges = np.histogram(values, np.arange(bins + 1) / bins)
    histogram = _table("Histogram", "score", "answers", "")
    histogram.columns[-1].justify = "left"
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        bar = "█" * max(round(_BAR * count / counts.max()), int(count > 0))
        histogram.add_row(f"{low:.2f} to {high:.2f}", str(count), bar)
    console.print(histogram)
    quantiles = _table("Quantiles", "", "before", "after")
    after = np.array([scale.apply(value) for value in values])
    for share in _QUANTILES:
        quantiles.add_row(f"{share} %", *(f"{np.quantile(v, share / 100):.3f}" for v in (values, after)))
    console.print(quantiles)
    zeros, ones = int((values == 0.0).sum()), int((values == 1.0).sum())
    console.print(
        f"Exactly 0: {zeros / len(values):.1%}; exactly 1: {ones / len(values):.1%}; "
        f"distinct values: {len(np.unique(values))}.",
        soft_wrap=True,
    )


def show_effect(kept: Sequence[Score], scale: Scale, console: Console) -> None:
    """Print the mean reward and the spread within groups before and after, and how many groups no scale changes."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for item in kept:
        if item.group is not None:
            groups.setdefault(item.group, []).append(item.score)
    before = [members for members in groups.values() if len(members) > 1]
    after = [[scale.apply(score) for score in members] for members in before]
    effect = _table(f"Effect at strength {scale.strength:g}", "", "before", "after")
    rewards = [s.rule + s.score for s in kept], [s.rule + scale.apply(s.score) for s in kept]
    effect.add_row("mean reward (judge + rule)", *(f"{statistics.fmean(values):.4f}" for values in rewards))
    spreads: list[tuple[str, Callable[[list[float]], float]]] = [
        ("mean variance of the scores in a group", statistics.pvariance),
        ("mean standard deviation", statistics.pstdev),
    ]
    for label, spread in spreads if before else []:
        effect.add_row(label, *(f"{statistics.fmean(map(spread, side)):.6f}" for side in (before, after)))
    console.print(effect)
    if not before:
        console.print("No two scores share a group, so the effect within groups is unknown.", soft_wrap=True)
        return
    flat = sum(len(set(members)) == 1 for members in before)
    console.print(
        f"Groups without variance: {flat} of {len(before)} ({flat / len(before):.1%}). All answers of such a group "
        "earned the same score, so no scale can change them.",
        soft_wrap=True,
    )
    alone = len(kept) - sum(map(len, before))
    if alone:
        console.print(f"Scores without another one in their group: {alone}; not part of the above.", soft_wrap=True)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index else "left")
    return table
