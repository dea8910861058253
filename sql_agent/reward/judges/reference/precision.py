"""How much of an answer is what was asked for, and not something else."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sql_agent.reward.judges.reference.facts import Fact, initials
from sql_agent.reward.judges.reference.filler_words import is_framing
from sql_agent.reward.judges.reference.passage import Passage, pairs, terms, weight
from sql_agent.reward.judges.reference.refusal import declines, lacks
from sql_agent.reward.judges.text import find, is_chinese, is_number, normalise
from sql_agent.schemas import QueryCall, Question

_POWER = 1.5  # of the share of right items
_IN_ROWS = 0.1  # what a true item that nobody asked for counts against one from nowhere
_ANOTHER_FIELD = 0.2  # the same where names were asked for
_ANOTHER_ROW = 0.5  # and where it is itself such a name, of a row that is no answer
_WRONG_NUMBER = 1.5  # what a number from nowhere counts
_PROSE = 0.25  # the share of an item that may be strange without counting
_LEADING = 0.5  # the same before the first fact
_SPARE = 2.0  # weight of strange words beside a fact that costs nothing, on top of half the fact's own
_BESIDE_A_FACT = 0.15  # what each further word there costs
_LONG_ITEM = 4.0  # weight of strange words from which on an item counts as several
_FOREIGN = 0.3  # what a Latin word in a Chinese answer counts: mostly the same name once more
_CAUTION = re.compile(
    r"\b(?:consult|ask|see|talk to|speak to|contact|advice of|follow)\b[^.;]*\b(?:doctor|physician|pharmacist"
    r"|professional|clinician|prescriber|leaflet|label)\b|\bnot (?:a substitute for )?medical advice\b"
    r"|\blet me know\b|\bfeel free\b|\bhope this\b|\bhappy to\b|\bif you (?:need|have|want)\b"
    r"|\b(?:see|check|read|refer to)\b[^.;]*\b(?:leaflet|label|package)\b"
    r"|\b(?:for )?(?:reference|research|information(?:al purposes)?) only\b|\bplease note\b"
    r"|仅供参考|如有|如需|欢迎|希望(?:对|能)|随时|遵(?:从|照|循)?医(?:师|生)?嘱|咨询(?:专业)?(?:医|药)|医(?:生|师)(?:的)?(?:指导|建议)|就医|不构成|说明书|查看[^。；，]*包装"
)
_PIECE = re.compile(r"[;；。！？!?\n，,]|\.\s")


@dataclass(frozen=True)
class Known:
    """What an answer may say: texts whose words are expected there, and rows whose words are at least true."""

    texts: tuple[tuple[str, ...], ...]
    rows: tuple[tuple[str, ...], ...]

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(token for text in self.texts for token in text)

    @cached_property
    def retrieved(self) -> frozenset[str]:
        return frozenset(token for cell in self.rows for token in cell)

    @cached_property
    def _pairs(self) -> set[tuple[str, str]]:
        return set().union(*(pairs(text) for text in self.texts))

    @cached_property
    def _retrieved_pairs(self) -> set[tuple[str, str]]:
        return set().union(*(pairs(cell) for cell in self.rows))

    def strange(self, item: Sequence[str], *, in_rows: bool = False) -> list[str]:
        """The tokens of an item that are neither known nor framing (nor, with `in_rows`, retrieved).

        A Chinese character is known where a neighbour of it is the same as in a known text.
        """
        words = self.words | self.retrieved if in_rows else self.words
        known_pairs = self._pairs | self._retrieved_pairs if in_rows else self._pairs
        framing = is_framing(item)
        found = []
        for index, token in enumerate(item):
            if framing[index]:
                continue
            if is_chinese(token) and len(token) == 1:
                beside = [(token, after) for after in item[index + 1 : index + 2]]
                beside += [(before, token) for before in item[max(0, index - 1) : index]]
                known = any(pair in known_pairs for pair in beside) or (len(item) == 1 and token in words)
            else:
                known = token in words
            if not known:
                found.append(token)
        return found


def known(question: Question, facts: Sequence[Fact], calls: Sequence[QueryCall]) -> Known:
    """What is known of a question: its own words, its facts, and the column's name as the reference SQL has it."""
    texts = [terms(question.question), terms(question.sql or "")]
    texts.append((str(len(facts)),))
    texts += [part for fact in facts for part in (fact.value, fact.owner, (initials(fact.value) or "",))]
    return Known(tuple(texts), tuple(cells(calls)))


def cells(calls: Sequence[QueryCall]) -> list[tuple[str, ...]]:
    """The tokens of each cell that the queries returned."""
    return [terms(str(cell)) for call in calls for row in call.answer.records for cell in row if cell is not None]


def without_remarks(text: str, facts: Sequence[Fact]) -> str:
    """The answer without its cautions and what it says that the data lacks, unless a fact stands there."""
    kept, start = [], 0
    plain = normalise(text)
    for end in [*(match.end() for match in _PIECE.finditer(plain)), len(plain)]:
        piece = plain[start:end]
        remark = _CAUTION.search(piece) or lacks(piece) or declines(piece)
        if not remark or _holds_a_fact(terms(piece), facts):
            kept.append(piece)
        start = end
    return "".join(kept)


def _holds_a_fact(piece: Sequence[str], facts: Sequence[Fact]) -> bool:
    return any(piece and (find(fact.value, piece) >= 0 or find(piece, fact.value) >= 0) for fact in facts)


def precision(answer: Passage, said: Collection[int], held: int, expected: Known, *, names_asked: bool) -> float:
    """(right / (right + wrong)) ** 1.5 over `held` said facts and the items of the answer, 0.0–1.0.

    `said` are the positions where facts are said. An item is wrong when it says something that is neither a fact nor
    expected; it counts less when it stands in the retrieved rows. Words beside a fact in its own item, and those that
    lead to the first fact, are prose, up to a few.
    """
    if not held:
        return 0.0
    chinese = sum(is_chinese(token) for token in answer.tokens) > len(answer.tokens) / 2
    wrong = sum(
        _wrongness(answer, positions, said, expected, chinese=chinese, names_asked=names_asked)
        for positions in answer.item_positions
    )
    return float((held / (held + wrong)) ** _POWER)


def _wrongness(
    answer: Passage,
    positions: Sequence[int],
    said: Collection[int],
    expected: Known,
    *,
    chinese: bool,
    names_asked: bool,
) -> float:
    item = [answer.tokens[position] for position in positions]
    strange, from_nowhere = expected.strange(item), expected.strange(item, in_rows=True)
    if any(is_number(token) for token in from_nowhere):
        return _WRONG_NUMBER
    amount = _amount(strange, chinese)
    facts = sum(weight(answer.tokens[position]) for position in positions if position in said)
    if facts:
        beside = max(0.0, amount - _SPARE - facts / 2)
        return _BESIDE_A_FACT * beside + max(0.0, beside - _LONG_ITEM / 2)
    prose = _LEADING if said and positions[-1] < min(said) else _PROSE
    if not strange or (amount <= _amount(item, chinese) * prose and any(is_framing(item))):
        return 0.0
    if chinese and all(token.isascii() for token in strange):
        return min(_IN_ROWS, amount)
    return max(1.0, amount / _LONG_ITEM) if from_nowhere else _in_rows(item, expected, names_asked=names_asked)


def _in_rows(item: Sequence[str], expected: Known, *, names_asked: bool) -> float:
    """What an item counts that stands in the retrieved rows."""
    if not names_asked:
        return _IN_ROWS
    return _ANOTHER_ROW if _content(item) in {_content(cell) for cell in expected.rows} else _ANOTHER_FIELD


def _content(item: Sequence[str]) -> tuple[str, ...]:
    return tuple(token for token, framing in zip(item, is_framing(item), strict=True) if not framing)


def _amount(tokens: Iterable[str], chinese: bool) -> float:
    return sum(
        (_FOREIGN if chinese and token.isascii() and not is_number(token) else weight(token) for token in tokens), 0.0
    )
