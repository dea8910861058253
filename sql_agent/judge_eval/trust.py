"""Keep what an evaluation of a judge found, and refuse to train with a judge that it found too weak."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from sql_agent.config.settings import JudgeSettings
from sql_agent.errors import ConfigError
from sql_agent.judge_eval.evaluate import JudgeEvaluation
from sql_agent.judge_eval.robustness import Robustness
from sql_agent.reward.judges.base import GroupJudge, Judge
from sql_agent.system.files import atomic_write

ENOUGH = 50  # labelled answers; fewer say little, and a first try with three must not stop a run
ENOUGH_QUESTIONS = 20
_COMMAND = "sql-agent judge evaluate"
_GENERATED = "-generated"  # in the name of a file: without labels
_READ_NO_PROSE = frozenset({"facts"})
_COMPARES_RESULTS = frozenset({"execution"})  # with nothing to agree about


def reads_prose(judge: Judge) -> bool:
    """Return whether a model grades, in `judge` or a panel: then labelled answers say how far to trust it."""
    return not set(judge.name.removesuffix("-scaled").split("+")) <= _READ_NO_PROSE


def save_evaluation(judge: Judge, evaluation: JudgeEvaluation, folder: Path) -> Path | None:
    """Keep `evaluation` as the latest of `judge`; returns the file.

    None where it says nothing of agreement: too few answers were graded, or all labels or all scores are the same.
    """
    if evaluation.agreement.answers < ENOUGH or evaluation.agreement.measures["spearman"].value is None:
        return None
    return _save(evaluation.model_dump_json(indent=2), folder / _file_name(judge))


def save_robustness(judge: Judge, robustness: Robustness, folder: Path) -> Path | None:
    """Keep the sums of `robustness` as the latest of `judge`; returns the file, or None for too few questions."""
    if robustness.questions < ENOUGH_QUESTIONS or robustness.worst_false is None:
        return None
    return _save(robustness.summary().model_dump_json(), folder / _file_name(judge, _GENERATED))


def load_evaluation(judge: Judge, folder: Path) -> JudgeEvaluation | None:
    """Return the latest evaluation of `judge` with labels kept in `folder`, else the shipped one, else None."""
    for text in _kept(_file_name(judge), folder):
        try:
            return JudgeEvaluation.model_validate_json(text)
        except ValidationError:
            continue  # written by another version: as good as none
    return None


def load_robustness(judge: Judge, folder: Path) -> Robustness | None:
    """Return the latest evaluation of `judge` without labels kept in `folder`, else the shipped one, else None."""
    for text in _kept(_file_name(judge, _GENERATED), folder):
        try:
            return Robustness.model_validate_json(text)
        except ValidationError:
            continue
    return None


def check_trust(judge: Judge, settings: JudgeSettings) -> str | None:
    """Return what to warn of before `judge` is trained with; None when there is nothing.

    A judge that compares answers is trusted as far as every judge that vouches for it: the one that its model is when
    it grades a single answer, and the one that grades for the metrics. Raises ConfigError when a judge pays a false
    transformation more than `settings.max_false_reward` in the mean, or agrees with labels less than
    `settings.min_agreement`, and `settings.allow_weak` is not set.
    """
    if judge.name in _COMPARES_RESULTS:
        return None
    if not isinstance(judge, GroupJudge):
        return _check(judge, settings, judge.name, settings.name)
    checked = [_check(part, settings, f"{judge.name} ({name})", name) for name, part in judge.vouched_by.items()]
    return " ".join(warning for warning in checked if warning) or None


def _check(judge: Judge, settings: JudgeSettings, name: str, evaluated_as: str) -> str | None:
    robustness = load_robustness(judge, settings.evaluations_dir)
    evaluation = load_evaluation(judge, settings.evaluations_dir) if reads_prose(judge) else None
    if robustness is None and evaluation is None:
        return f"The judge {name} was never evaluated: run `{_COMMAND} judge.name={evaluated_as}` first."
    reasons: list[str] = []
    if robustness is not None:
        reasons += _paid_falsehood(robustness, settings.max_false_reward)
    if evaluation is not None:
        reasons += _disagreement(evaluation, settings.min_agreement)
    if reasons and not settings.allow_weak:
        raise ConfigError(
            f"the judge {name} {' and '.join(reasons)}",
            hint="take a better judge; judge.allow_weak=true trains with it all the same",
        )
    if reasons:
        return f"The judge {name} is weak: it {' and '.join(reasons)}. What training finds may be its faults."
    if evaluation is not None and evaluation.attacks_above_limit:
        return f"{evaluation.attacks_above_limit} attacks get through to the judge {name}; training may find them."
    return None


def _paid_falsehood(robustness: Robustness, limit: float) -> Iterator[str]:
    worst = robustness.worst_false
    if worst is not None and (worst.total.mean or 0.0) > limit:
        yield (
            f"pays {worst.total.mean:.2f} in the mean for false answers of the kind {worst.name.replace('_', ' ')} "
            f"({worst.description.rstrip('.')}), evaluated {robustness.date}; judge.max_false_reward is {limit:g}"
        )


def _disagreement(evaluation: JudgeEvaluation, limit: float) -> Iterator[str]:
    agreement = evaluation.agreement.measures["spearman"].value
    if agreement is None:
        raise ValueError(f"an evaluation without agreement was kept for {evaluation.judge}")
    if agreement < limit:
        yield (
            f"agrees too little with labelled answers: Spearman {agreement:.2f}, evaluated {evaluation.date}; "
            f"judge.min_agreement is {limit:g}"
        )


def _save(text: str, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as unfinished:
        unfinished.write_text(f"{text}\n", encoding="utf-8")
    return path


def _kept(name: str, folder: Path) -> Iterator[str]:
    if (folder / name).exists():
        yield (folder / name).read_text(encoding="utf-8")
    shipped = files("sql_agent.judge_eval").joinpath("evaluations", name)
    if shipped.is_file():
        yield shipped.read_text(encoding="utf-8")


def _file_name(judge: Judge, suffix: str = "") -> str:
    return f"{hashlib.sha256(judge.identity.encode()).hexdigest()[:24]}{suffix}.json"
