"""Whether a judge was ever held against labels, and how it did: nobody should train on a judge that nobody tested."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from sql_agent.config.settings import JudgeSettings
from sql_agent.errors import ConfigError
from sql_agent.reward.judges.base import GroupJudge, Judge
from sql_agent.reward.meta_evaluation.evaluate import Evaluation

ENOUGH = 50  # labelled answers; fewer say little, and a first try with three must not stop a run
_COMMAND = "sql-agent judge evaluate"


def save_evaluation(judge: Judge, evaluation: Evaluation, folder: Path) -> Path | None:
    """Keep `evaluation` as the latest of `judge`; returns the file.

    None where it says nothing of agreement: too few answers were graded, or all labels or all scores are the same.
    """
    if evaluation.agreement.answers < ENOUGH or evaluation.agreement.measures["spearman"].value is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _file_name(judge)
    path.write_text(evaluation.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return path


def load_evaluation(judge: Judge, folder: Path) -> Evaluation | None:
    """The latest evaluation of `judge` here, else the one that we ship; None when there is neither."""
    for text in _kept(judge, folder):
        try:
            return Evaluation.model_validate_json(text)
        except ValidationError:
            continue  # written by another version: as good as none
    return None


def check_trust(judge: Judge, settings: JudgeSettings) -> str | None:
    """What to warn of before `judge` is trained with; None when there is nothing.

    A judge that compares answers is trusted as far as every judge that vouches for it: the one that its model is when
    it grades a single answer, and the one that grades for the metrics. Raises ConfigError when an agreement with labels
    is below `settings.min_agreement` and `settings.allow_weak` is not set.
    """
    if not isinstance(judge, GroupJudge):
        return _check(judge, settings, judge.name, settings.name)
    checked = [_check(part, settings, f"{judge.name} ({name})", name) for name, part in judge.vouched_by.items()]
    return " ".join(warning for warning in checked if warning) or None


def _check(judge: Judge, settings: JudgeSettings, name: str, evaluated_as: str) -> str | None:
    evaluation = load_evaluation(judge, settings.evaluations_dir)
    if evaluation is None:
        return f"The judge {name} was never evaluated: run `{_COMMAND} judge.name={evaluated_as}` first."
    agreement = evaluation.agreement.measures["spearman"].value
    if agreement is None:
        raise ValueError(f"an evaluation without agreement was kept for {name}")
    told = f"Spearman {agreement:.2f}"
    weak = agreement < settings.min_agreement
    if weak and not settings.allow_weak:
        raise ConfigError(
            f"the judge {name} agrees too little with labelled answers: {told}, evaluated {evaluation.date}; "
            f"judge.min_agreement is {settings.min_agreement:g}",
            hint="take a better judge; judge.allow_weak=true trains with it all the same",
        )
    if weak:
        return f"The judge {name} is weak ({told}): what training finds may be its faults."
    if evaluation.attacks_above_limit:
        return f"{evaluation.attacks_above_limit} attacks get through to the judge {name}; training may find them."
    return None


def _kept(judge: Judge, folder: Path) -> Iterator[str]:
    name = _file_name(judge)
    if (folder / name).exists():
        yield (folder / name).read_text(encoding="utf-8")
    shipped = files("sql_agent.reward.meta_evaluation").joinpath("evaluations", name)
    if shipped.is_file():
        yield shipped.read_text(encoding="utf-8")


def _file_name(judge: Judge) -> str:
    return hashlib.sha256(judge.identity.encode()).hexdigest()[:24] + ".json"
