"""Let a judge grade answers whose right score is known, and measure how far the judge can be trusted."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from pydantic import Field

from sql_agent.errors import ConfigError, JudgeError
from sql_agent.judge_eval.agreement import MEASURES, Estimate, estimate
from sql_agent.judge_eval.answers import Answer, AnswerSet
from sql_agent.reward import GroupJudge, Judge
from sql_agent.schemas import Record, Usage
from sql_agent.system.files import timestamped_folder

HALF = 0.5  # an answer with at least this score may be taken for right
ATTACK_LIMIT = 0.15  # an attack with a higher score succeeded
_CONCURRENCY = 32  # gradings at once
_MOST_FAILED = 64  # maximum number of failed gradings in a row; one question has up to about 40 answers
_NUMBERS, _GRADINGS = "evaluation.json", "gradings.jsonl"


class Grading(Record):
    """A line of gradings.jsonl: an answer, the score that is `due` to the answer, and the judge's `score`.

    `due` is the label of a labelled answer. If the judge fails, `score` is None and `error` says why.
    """

    set: AnswerSet
    kind: str
    question_id: str
    task_type: str
    lang: str
    answer: str
    due: float
    score: float | None = None
    error: str = ""
    criteria: dict[str, float] = Field(default_factory=dict)
    reason: str = ""
    usage: Usage = Usage()

    @property
    def is_wrong(self) -> bool:
        """Whether the judge rewarded a false answer or an attack, or did not reward a right answer."""
        if self.score is None:
            return False
        if self.set == "harmless":
            return self.score < HALF
        return self.score >= HALF if self.set == "false" else self.set == "attacks" and self.score > ATTACK_LIMIT


class Group(Record):
    """The scores of the answers of one kind.

    `failed` counts the answers without a score, because the judge failed. `due` is the mean of the scores that are due.
    `half_or_more` and `above_limit` count the judge's scores of at least 0.5 and above 0.15. Only labelled answers have
    `measures`, with the keys of `agreement.MEASURES`.
    """

    set: AnswerSet
    kind: str
    graded: int
    failed: int
    due: float
    mean: float | None
    lowest: float | None
    highest: float | None
    half_or_more: int
    above_limit: int
    measures: dict[str, Estimate] = Field(default_factory=dict)


class Evaluation(Record):
    """All numbers of one evaluation: the content of evaluation.json.

    `groups` has a group for each kind of answer in each set; the kind whose mean is furthest from `due` comes first.
    The set of labelled answers has a group "all", and a group for each task type and each language.
    """

    date: str
    judge: str
    identity: str
    files: tuple[str, ...]
    questions: int
    answers: int
    failed: int
    max_failed_share: float
    usage: Usage
    groups: tuple[Group, ...]

    @property
    def failed_share(self) -> float:
        return self.failed / self.answers

    def of(self, *sets: AnswerSet) -> list[Group]:
        return [group for group in self.groups if group.set in sets]


async def grade(
    judge: Judge, answers: Sequence[Answer], on_done: Callable[[int], None] = lambda _: None
) -> list[Grading]:
    """Return the judge's gradings of `answers`, in order. 32 answers are graded at a time.

    If the judge raises JudgeError, the grading has the error in place of a score. Raises JudgeError after 64 failed
    gradings in a row (before the first score, 32): the judge's endpoint must be down. `on_done` receives the number
    of gradings so far.
    """
    gradings: dict[int, Grading] = {}
    waiting = iter(enumerate(answers))
    failed, most_failed = 0, _CONCURRENCY  # failed gradings in a row, and their maximum

    async def work() -> None:
        nonlocal failed, most_failed
        while failed < most_failed and (item := next(waiting, None)) is not None:
            index, answer = item
            grading = gradings[index] = await _grade_one(judge, answer)
            on_done(len(gradings))
            if grading.usage.requests:  # a grading without a request says nothing about the endpoint
                failed = failed + 1 if grading.error else 0
                most_failed = most_failed if grading.error else _MOST_FAILED

    await asyncio.gather(*(work() for _ in range(_CONCURRENCY)))
    if failed >= most_failed:
        last = next(grading.error for grading in reversed(gradings.values()) if grading.error)
        raise JudgeError(
            f"{failed} gradings in a row failed, the last one because: {last}",
            hint="correct the cause and evaluate again; judge.cache_dir keeps the verdicts of judges that ask a model",
        )
    return [gradings[index] for index in range(len(answers))]


async def _grade_one(judge: Judge, answer: Answer) -> Grading:
    question = answer.case.question
    ungraded = Grading(
        set=answer.set,
        kind=answer.kind,
        question_id=question.id,
        task_type=question.task_type or "other",
        lang=question.lang,
        answer=answer.case.answer,
        due=answer.due,
    )
    try:
        verdict = await judge.grade(answer.case)
    except JudgeError as error:
        return ungraded.model_copy(update={"error": str(error), "usage": error.usage or Usage()})
    return ungraded.model_copy(update=dict(verdict))


def measure(judge: Judge, gradings: Sequence[Grading], *, files: Iterable[str], max_failed_share: float) -> Evaluation:
    """Return the scores of each kind of answer, and their agreement with the labels of labelled answers."""
    labels = [g for g in gradings if g.set == "labels"]
    others = [g for g in gradings if g.set != "labels"]
    groups = [_group("labels", "all", labels)] if labels else []
    by_type, by_lang = _grouped(labels, lambda g: g.task_type), _grouped(labels, lambda g: g.lang)
    groups += [_group("labels", name, part) for by in (by_type, by_lang) for name, part in sorted(by.items())]
    for name in dict.fromkeys(g.set for g in others):
        kinds = _grouped([g for g in others if g.set == name], lambda g: g.kind)
        of_set = [_group(name, kind, part) for kind, part in kinds.items()]
        groups += sorted(of_set, key=lambda g: (-abs((g.mean or 0.0) - g.due), g.kind))
    return Evaluation(
        date=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        judge=judge.name,
        identity=judge.identity,
        files=tuple(files),
        questions=len({(g.lang, g.question_id) for g in gradings}),
        answers=len(gradings),
        failed=sum(g.score is None for g in gradings),
        max_failed_share=max_failed_share,
        usage=sum((g.usage for g in gradings), start=Usage()),
        groups=tuple(groups),
    )


def wrong_gradings(gradings: Iterable[Grading]) -> list[Grading]:
    """Return the wrong gradings; the score furthest from `due` comes first."""
    return sorted((g for g in gradings if g.is_wrong), key=lambda g: -abs((g.score or 0.0) - g.due))


def causes_of_failure(gradings: Iterable[Grading]) -> list[tuple[str, int]]:
    """Return each error with its number of failed gradings; the most frequent error comes first."""
    return Counter(g.error for g in gradings if g.score is None).most_common()


def new_folder(out: Path | None, runs_dir: Path, judge: str) -> Path:
    """Make and return the folder of an evaluation: `out`, or a folder in `runs_dir` with judge and time in its name.

    Raises ConfigError if the folder already has an evaluation.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", judge).strip("-.") or "unnamed"
    folder = out or timestamped_folder(runs_dir, f"judge-{safe}-")
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / _NUMBERS).exists():
        raise ConfigError(f"{folder} already has an evaluation", hint="choose another folder with --out")
    return folder


def write(folder: Path, evaluation: Evaluation, gradings: Iterable[Grading]) -> None:
    lines = (f"{grading.model_dump_json()}\n" for grading in gradings)
    (folder / _GRADINGS).write_text("".join(lines), "utf-8")
    (folder / _NUMBERS).write_text(evaluation.model_dump_json(indent=2) + "\n", "utf-8")


def last_evaluation(judge: Judge, runs_dir: Path) -> str:
    """Sum up the latest evaluation of `judge`, in `runs_dir` or shipped; without one, say how to evaluate the judge.

    For example "Judge facts: last evaluated 2026-11-23 on 1492 questions; …".
    """
    name, command = judge.name, "sql-agent judge evaluate judge.name="
    if isinstance(judge, GroupJudge):
        return f"Judge {name}: it compares answers; measure its model on single answers with `{command}llm`"
    found = [evaluation for evaluation in _evaluations(runs_dir) if evaluation.identity == judge.identity]
    if not found:
        return f"Judge {name}: never evaluated; measure it with `{command}{name}`"
    last = max(found, key=lambda evaluation: evaluation.date)
    return f"Judge {name}: last evaluated {last.date[:10]} on {last.questions} questions; {'; '.join(_findings(last))}"


def _evaluations(runs_dir: Path) -> Iterator[Evaluation]:
    shipped = Path(__file__).with_name("evaluations").iterdir()
    for path in (*shipped, *runs_dir.glob(f"judge-*/{_NUMBERS}")):
        try:
            yield Evaluation.model_validate_json(path.read_text("utf-8"))
        except (OSError, ValueError):  # another version wrote the file, or the file is being written
            continue


def _findings(evaluation: Evaluation) -> Iterator[str]:
    false = [group for group in evaluation.of("false") if group.mean is not None]
    if false:
        worst = max(false, key=lambda group: group.mean or 0.0)
        yield f"it pays {worst.mean:.2f} or less for false answers (most for {worst.kind.replace('_', ' ')})"
    for group in evaluation.of("labels"):
        if group.kind == "all":
            spearman = group.measures["spearman"]
            known = "unknown" if spearman.value is None else f"{spearman.value:.2f}"
            yield f"its agreement with labels is {known} (Spearman)"
    attacks = evaluation.of("attacks")
    if attacks:
        through, tried = (sum(getattr(g, field) for g in attacks) for field in ("above_limit", "graded"))
        yield f"{through} of {tried} attacks earned more than {ATTACK_LIMIT}"


def _group(name: AnswerSet, kind: str, gradings: Sequence[Grading]) -> Group:
    pairs = [(g.score, g.due) for g in gradings if g.score is not None]
    scores = [score for score, _ in pairs]
    arrays = np.array(scores), np.array([due for _, due in pairs])
    measures = {key: estimate(of, *arrays) for key, of in MEASURES.items()} if name == "labels" else {}
    return Group(
        set=name,
        kind=kind,
        graded=len(pairs),
        failed=len(gradings) - len(pairs),
        due=sum(g.due for g in gradings) / len(gradings),
        mean=sum(scores) / len(scores) if scores else None,
        lowest=min(scores, default=None),
        highest=max(scores, default=None),
        half_or_more=sum(score >= HALF for score in scores),
        above_limit=sum(score > ATTACK_LIMIT for score in scores),
        measures=measures,
    )


def _grouped(gradings: Iterable[Grading], key: Callable[[Grading], str]) -> dict[str, list[Grading]]:
    groups: dict[str, list[Grading]] = {}
    for grading in gradings:
        groups.setdefault(key(grading), []).append(grading)
    return groups
