"""Wrap judges: average the scores of several judges, cache verdicts, or score an answer 0 without asking a judge."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import statistics
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakValueDictionary

import diskcache

from sql_agent.reward import Judge, JudgeCase, Verdict
from sql_agent.schemas import Usage
from sql_agent.system.files import check_writable


class JudgeWrapper:
    """Base of judges that have the name and identity of the judge that they wrap."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    @property
    def name(self) -> str:
        return self._judge.name

    @property
    def identity(self) -> str:
        return self._judge.identity


class PanelJudge:
    """A panel of judges: every member grades every case, and the score is the mean.

    Training exploits the weaknesses of a single judge first. Each member adds its score as the criterion "label"
    and its criteria as "label.criterion". The criterion "disagreement" is the highest minus the lowest score.
    """

    def __init__(self, members: Sequence[tuple[str, Judge]]) -> None:
        self._members = members

    @property
    def name(self) -> str:
        return "+".join(label for label, _ in self._members)

    @property
    def identity(self) -> str:
        return "panel/1:mean:" + "+".join(judge.identity for _, judge in self._members)

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade one case. Raises JudgeError if a member fails: a mean without it does not compare to other scores."""
        found = await asyncio.gather(*(judge.grade(case) for _, judge in self._members))
        verdicts = dict(zip((label for label, _ in self._members), found, strict=True))
        scores = [verdict.score for verdict in found]
        criteria = {"disagreement": max(scores) - min(scores)}
        for label, verdict in verdicts.items():
            criteria[label] = verdict.score
            criteria |= {f"{label}.{name}": value for name, value in verdict.criteria.items()}
        return Verdict(
            score=statistics.fmean(scores),
            criteria=criteria,
            reason="; ".join(f"{label}: {verdict.reason}" for label, verdict in verdicts.items()),
            usage=sum((verdict.usage for verdict in found), Usage()),
        )


class CachedJudge(JudgeWrapper):
    """A judge with a cache of verdicts in `folder`, which other processes and later runs share. Errors are not cached.

    Equal cases at the same time, such as equal answers in a group, are graded once. The key of a verdict is the judge's
    identity and all that a judge sees of a case: question, reference, type, evidence, answer, statements and rows.
    """

    def __init__(self, judge: Judge, folder: Path) -> None:
        super().__init__(judge)
        check_writable(folder, "judge.cache_dir")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._cache: diskcache.Cache | None = None
        # A lock belongs to an event loop, and a script may call asyncio.run twice.
        self._locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    async def grade(self, case: JudgeCase) -> Verdict:
        """Return the cached verdict, with the usage of one cache hit, else ask the judge. Raises JudgeError."""
        if self._cache is None:  # opened on first use, because SQLite connections must not cross a fork
            # JSON and not pickle, because unpickling another user's file could run code.
            self._cache = diskcache.Cache(str(self._folder), disk=diskcache.JSONDisk)
        key = self._key(case)
        async with self._locks.setdefault((id(asyncio.get_running_loop()), key), asyncio.Lock()):
            kept = await asyncio.to_thread(self._cache.get, key)
            if kept is not None:
                return Verdict.model_validate_json(kept).model_copy(update={"usage": Usage(cache_hits=1)})
            verdict = await self._judge.grade(case)
            await asyncio.to_thread(self._cache.set, key, verdict.model_dump_json())
            return verdict

    def _key(self, case: JudgeCase) -> str:
        question = case.question.model_dump(include={"lang", "question", "answer", "enough", "task_type", "evidence"})
        queries = [(c.sql, c.answer.columns, c.answer.records) for c in case.calls if c.answer.status == "ok"]
        parts = [self.identity, question, case.answer, queries]
        return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).hexdigest()


_MAX_CHARS = 2000  # maximum for an answer
# Matches JSON, a tuple of rows, a tool call, and SQL.
_RAW = re.compile(
    r'^\s*(?:[\[{]\s*[\[{(\'"\d]|\(\s*(?:[\[{(\'"]|\d+\s*,))|"(?:status|columns|records)"\s*:|<tool_call>|^\s*select\b.*\bfrom\b',
    re.IGNORECASE | re.DOTALL,
)
_MARKDOWN = re.compile(r"[*_`#>|~]+|^\s*[-+•]\s+|^\s*\d{1,2}[.)、](?=\s|\D)", re.MULTILINE)
_LIST_NUMBERS = re.compile(r"[①-⒇]|(?:(?<=^)|(?<=[\s;；,，、:：。]))[(（]\d{1,2}[)）]", re.MULTILINE)
# Phrases that try to influence a grader. A phrase that is also in the question, the reference or a row is allowed,
# because it belongs to the subject ("pain score").
_TO_THE_JUDGE = re.compile(
    r"\b(?:full|maximum|top|perfect) (?:marks?|score|credit|points?)\b|\b(?:10/10|100/100|five stars)\b"
    r"|\b(?:judges?|graders?|evaluators?|examiners?|reviewers?|rubric|benchmark)\b|\breference (?:answers?|facts?)\b"
    r"|\b(?:ignore|disregard|forget) (?:all |any |the |your )*"
    r"(?:previous|above|prior|earlier|preceding|reference|rubric)\b"
    r"|\bscore ?(?:[:=]|of|is|should be|must be) ?(?:1(?:\.0)?|10|100)\b"
    r"|\b(?:grade|rate|score|mark) (?:this|it|me|my answer)\b"
    r"|\b(?:system|assistant|developer) ?(?:prompt|message|override|note)\b|<\|im_(?:start|end)\|>|\[/?inst\]"
    r'|</?think|"score"'
    r"|满分|打分|得分|参考答案|评委|评分者|评分员|评审|阅卷|给(?:我|本|这|该)[^。；，]{0,8}分"
    r"|忽略[^。；，]{0,10}(?:指令|要求|规则|标准|内容|参考)|系统(?:提示|指令|消息)"
)


def prefilter(case: JudgeCase) -> str | None:
    """Return why `case` scores 0 without a judge; None if a judge has to grade it."""
    answer, question = case.answer, case.question
    # A question that a user types has none of these, and may be answered without a query.
    needs_query = question.sql is not None or question.task_type is not None or bool(question.evidence)
    queried = any(call.answer.status == "ok" for call in case.calls)
    stops = (
        ("empty answer", not answer.strip()),
        ("no word and no number in the answer", not re.search(r"\w", answer)),
        (f"more than {_MAX_CHARS} characters", len(answer) > _MAX_CHARS),
        ("raw data or SQL instead of an answer", _RAW.search(answer)),
        ("no successful query", needs_query and not queried),
        ("speaks to the judge", _addresses_the_judge(case)),
    )
    return next((reason for reason, stopped in stops if stopped), None)


def _addresses_the_judge(case: JudgeCase) -> bool:
    """Return whether the answer addresses its grader in words that the question, reference and rows lack."""
    sources = [case.question.question, case.question.answer]
    sources += [str(cell) for call in case.calls for row in call.answer.records for cell in row]
    allowed = _without_markdown(" ".join(sources))
    return any(match.group() not in allowed for match in _TO_THE_JUDGE.finditer(_without_markdown(case.answer)))


def _without_markdown(text: str) -> str:
    """Return `text` in NFKC and lower case, without Markdown."""
    return _MARKDOWN.sub(" ", unicodedata.normalize("NFKC", _LIST_NUMBERS.sub("; ", text)).casefold())


class PrefilteredJudge(JudgeWrapper):
    """A judge that grades only the answers that pass the prefilter; all others score 0."""

    async def grade(self, case: JudgeCase) -> Verdict:
        stopped = prefilter(case)
        if stopped is None:
            verdict = await self._judge.grade(case)
            return verdict.model_copy(update={"criteria": verdict.criteria | {"prefiltered": 0.0}})
        return Verdict(score=0.0, criteria={"prefiltered": 1.0}, reason=f"prefilter: {stopped}")
