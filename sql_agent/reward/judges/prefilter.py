"""Score an answer 0 without a judge if it is empty, too long, raw data, without a query, or addresses the judge."""

from __future__ import annotations

import re
import unicodedata

from sql_agent.reward.judges.base import Judge, JudgeCase, Verdict
from sql_agent.reward.judges.wrappers import JudgeWrapper

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


def prefilter(case: JudgeCase, *, max_chars: int) -> str | None:
    """Return why `case` scores 0 without a judge; None if a judge has to grade it."""
    answer = case.answer
    queried = any(call.answer.status == "ok" for call in case.calls)
    stops = (
        ("empty answer", not answer.strip()),
        ("no word and no number in the answer", not re.search(r"\w", answer)),
        (f"more than {max_chars} characters", len(answer) > max_chars),
        ("raw data or SQL instead of an answer", is_raw(answer)),
        ("no successful query", _needs_a_query(case) and not queried),
        ("speaks to the judge", addresses_the_judge(case)),
    )
    return next((reason for reason, stopped in stops if stopped), None)


def is_raw(answer: str) -> bool:
    """Return whether the answer is JSON, a tuple of rows, a tool call or SQL."""
    return _RAW.search(answer) is not None


def addresses_the_judge(case: JudgeCase) -> bool:
    """Return whether the answer addresses its grader, in words that are in neither question, reference nor rows."""
    sources = [case.question.question, case.question.answer]
    sources += [str(cell) for call in case.calls for row in call.answer.records for cell in row]
    allowed = _without_markdown(" ".join(sources))
    return any(match.group() not in allowed for match in _TO_THE_JUDGE.finditer(_without_markdown(case.answer)))


def _without_markdown(text: str) -> str:
    """Return `text` in NFKC, lower case, and without Markdown, so that headers and bullets do not count."""
    return _MARKDOWN.sub(" ", unicodedata.normalize("NFKC", _LIST_NUMBERS.sub("; ", text)).casefold())


def _needs_a_query(case: JudgeCase) -> bool:
    """Return whether an answer without a query scores 0.

    Generated questions always need a query. A user's own question needs one only if it has SQL, evidence or a task
    type.
    """
    question = case.question
    return question.sql is not None or question.task_type is not None or bool(question.evidence)


class PrefilteredJudge(JudgeWrapper):
    """A judge behind the prefilter: an answer that the prefilter stops scores 0 without a call."""

    def __init__(self, judge: Judge, *, max_chars: int) -> None:
        super().__init__(judge)
        self._max_chars = max_chars

    async def grade(self, case: JudgeCase) -> Verdict:
        """Return the judge's verdict, or 0 with the reason if the prefilter stops the answer. Raises JudgeError."""
        stopped = prefilter(case, max_chars=self._max_chars)
        if stopped is None:
            verdict = await self._judge.grade(case)
            return verdict.model_copy(update={"criteria": verdict.criteria | {"prefiltered": 0.0}})
        return Verdict(score=0.0, criteria={"prefiltered": 1.0}, reason=f"prefilter: {stopped}")
