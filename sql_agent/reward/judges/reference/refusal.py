"""Whether an answer says that the data lacks something, which is not the same as that a thing lacks a property."""

from __future__ import annotations

import re

from sql_agent.reward.judges.text import normalise

_CLAUSE = re.compile(r"[;；:：。！？!?\n，]|,(?!\d)|\.(?=\s|$)|\b(?:but|however|although|though)\b|但")
# Where the data is, or what one does with it.
_DATA = re.compile(
    r"\b(?:database|data|dataset|tables?|records?|recorded|rows?|entry|entries|fields?|columns?|results?|quer(?:y|ies)"
    r"|search(?:es)?|information|info|details?|listed|found|find|look-?up|available|on file|match(?:es|ing)?"
    r"|stored?|documented|provided?|specified|mention(?:s|ed)?|included?|given)\b"
    r"|数据|库[中里内]|收录|记录|记载|表[中里内]|字段|[该此这]栏|一栏|查询|检索|搜索|结果|信息|资料|内容|条目|查到|找到|搜到|检索到|列出|提及|提供|注明|载明"
)
_LACKS = re.compile(
    r"\b(?:not?|n't|none|nothing|never|without|nowhere|neither|nor|cannot|unable|fail(?:s|ed)? to|lacks?|lacking|empty"
    r"|blank|missing|null|absent|zero|unavailable)\b|n't\b"
    r"|没有?|未[能曾]?|无[法此该任相]?|不[包含存在]|不到|查无|[为是]空|空[白值结记集]|缺[失少乏]|暂无|并无|不能|不详"
)
# One expression that says both by itself.
_ALONE = re.compile(
    r"\bunavailable\b|\b(?:is|was|are|were|came back|comes? back|returned) (?:null|empty|blank)\b"
    r"|\breturn(?:s|ed)? (?:nothing|no)|\bno (?:such )?(?:data|records?|results?|entr(?:y|ies)|information)\b"
    r"|\bnothing (?:about|on|for|is|was|came)\b"
    r"|查不到|找不到|查无|检索不到|搜不到|未查到|未找到|未收录|未记录|未记载|未检索到"
    r"|没查到|没找到|没收录|没记录|(?:结果|字段|栏|内容)为空"
    r"|没有(?:这一|该|此|这[条项个]|相关)"
)
# The question was declined, not looked up.
_DECLINES = re.compile(r"\b(?:help|medical advice|assist|comfortable|allowed)\b|不能帮|无法帮|不便|帮不")
# Nothing is said about the data by "or it might not be recorded".
_HEDGES = re.compile(r"\b(?:might|may|could) (?:not|be)\b|\bperhaps\b|\bpossibly\b|可能|也许|或许")


def clauses(text: str) -> list[str]:
    """The clauses of `text`, lower case and without Markdown."""
    return [clause for clause in _CLAUSE.split(normalise(text)) if clause and clause.strip()]


def lacks(clause: str) -> bool:
    """Whether the clause says that the data does not hold something ("X is not in the drug table")."""
    if _DECLINES.search(clause) or _HEDGES.search(clause):
        return False
    return _ALONE.search(clause) is not None or (_LACKS.search(clause) is not None and _DATA.search(clause) is not None)


def declines(clause: str) -> bool:
    """Whether the clause says that no answer can be given ("so I cannot state its treatment"); no claim either."""
    return bool(
        re.search(r"\b(?:cannot|can['’]t|can not|could not|couldn['’]t|unable|sorry|don['’]t know)\b", clause)
        or re.search(r"无法|不能(?:给|提|回|确)|抱歉|遗憾|对不起|不清楚|不知道", clause)
    )


def refuses(text: str) -> bool:
    """Whether any clause says that the data lacks something."""
    return any(lacks(clause) for clause in clauses(text))
