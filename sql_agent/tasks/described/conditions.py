"""Make conditions on the rows of a table from the values of a column."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sql_agent.schemas import Cell, Lang
from sql_agent.tasks.described.guess_description import DATE
from sql_agent.tasks.described.statement import Comparison, Operator

LONGEST = 80  # maximum number of characters of a value that a question or an answer repeats
_TRUE = frozenset({"yes", "y", "true", "t", "1", "1.0", "是", "有"})
# An age in years or months, or a span of ages: 2～6岁, 6个月～1岁, 12岁以上.
_SPAN = re.compile(r"(?:(\d+)(岁|个?月)?[-—～~〜至到])?(?<![\d.])(\d+)(岁|个?月)(以下|以内|及以上|以上)?")
_OPEN = re.compile("小于|大于|不足|超过|未满|不满")
_OLDEST = 15  # years
_PERIODS: tuple[tuple[str, Operator], ...] = (("category", "="), ("after", ">"), ("before", "<"))


@dataclass(frozen=True)
class Condition:
    """A condition on the rows of a table.

    `tests` are the condition in SQL, and `opposite` the opposite condition, if there is one. `phrase` is the key of
    the condition's wordings; `value` and `top` (the upper limit of a range) fill their slots.
    """

    column: str
    tests: tuple[Comparison, ...]
    phrase: str
    value: str
    top: str = ""
    opposite: tuple[Comparison, ...] = ()

    @property
    def has_word(self) -> bool:
        """Whether the condition searches for an item or a word."""
        return self.phrase in {"list", "text"}


def is_true(cell: Cell) -> bool:
    """Return whether the cell of a flag says yes."""
    return str(cell).strip().casefold() in _TRUE


def equal(column: str, cells: Sequence[Cell]) -> Iterator[Condition]:
    """Yield the condition that `column` equals a value, for each value; leave out values that differ only in case."""
    values = Counter(cells)
    folded = Counter(str(value).casefold().strip() for value in values)
    for value in values:
        text = str(value)
        if folded[text.casefold().strip()] == 1 and 0 < len(text) <= LONGEST and text == text.strip():
            test = Comparison(column, "=", value)
            yield Condition(column, (test,), "category", text, opposite=(Comparison(column, "<>", value),))


def searching(column: str, word: str, phrase: str) -> Condition:
    """Return the condition that a text contains a word."""
    opposite = Comparison(column, "NOT LIKE", word)
    return Condition(column, (Comparison(column, "LIKE", word),), phrase, word, opposite=(opposite,))


def true(column: str, cells: Sequence[Cell]) -> Iterator[Condition]:
    """Yield the condition that a flag is true, if the flag has exactly one value for yes and one for no."""
    values = set(cells)
    yes, no = ([value for value in values if is_true(value) is truth] for truth in (True, False))
    if len(yes) == len(no) == 1:
        opposite = Comparison(column, "=", no[0])
        yield Condition(column, (Comparison(column, "=", yes[0]),), "flag", "", opposite=(opposite,))


def ranges(column: str, cells: Sequence[Cell], unit: str, is_chinese: bool) -> Iterator[Condition]:
    """Yield conditions above, below and between rounded quantiles of the numbers."""
    numbers = sorted(cell for cell in cells if isinstance(cell, int | float))
    count = max(10, min(40, len(numbers) // 3))
    limits = sorted({_round(numbers[round(place / count * (len(numbers) - 1))]) for place in range(count + 1)})
    unit = unit if is_chinese or not unit else f" {unit}"
    for low, high in pairwise(limits):
        yield Condition(column, (Comparison(column, ">", low),), "above", f"{low}{unit}")
        yield Condition(column, (Comparison(column, "<", high),), "below", f"{high}{unit}")
        tests = Comparison(column, ">=", low), Comparison(column, "<=", high)
        yield Condition(column, tests, "between", str(low), f"{high}{unit}")


def _round(number: float) -> float:
    """Return a number with two significant digits, as an int if it is whole."""
    if number == 0 or not math.isfinite(number):
        return 0
    rounded = round(number, 1 - math.floor(math.log10(abs(number))))
    return int(rounded) if rounded == int(rounded) else rounded


def periods(column: str, cells: Sequence[Cell], lang: Lang, month_names: Sequence[str]) -> Iterator[Condition]:
    """Yield conditions on the year of a date, or on its month if the dates are of at most two years."""
    is_chinese = lang == "zh"
    if all(isinstance(cell, int | float) for cell in cells):
        for number in sorted({int(str(cell).partition(".")[0]) for cell in cells}):
            for phrase, operator in _PERIODS:
                shown = f"{number}年" if is_chinese else str(number)
                yield Condition(column, (Comparison(column, operator, number),), phrase, shown)
        return
    months = {str(cell)[:7] for cell in cells if DATE.fullmatch(str(cell))}
    years = {month[:4] for month in months}
    for period in sorted(years if len(years) > 2 else months):
        year, _, month = period.partition("-")
        shown = f"{year}年" if is_chinese else year
        first, next_first = f"{year}-01-01", f"{int(year) + 1}-01-01"
        if month:
            name = month_names[int(month) - 1]
            shown = f"{shown}{name}" if is_chinese else f"{name} {year}"
            first, next_first = f"{period}-01", f"{int(year) + int(month) // 12}-{int(month) % 12 + 1:02}-01"
        yield Condition(column, (Comparison(column, ">=", first), Comparison(column, "<", next_first)), "in", shown)
        yield Condition(column, (Comparison(column, ">=", next_first),), "after", shown)
        yield Condition(column, (Comparison(column, "<", first),), "before", shown)


def sentences_by_age(sentences: Sequence[str]) -> dict[str, str]:
    """Return {age: sentence} for ages of children, such as 8个月, that lie inside the span of one sentence only.

    Return {} if a sentence has 岁 without one clear span, such as 一岁 or 小于3岁. Return no age in months if a
    sentence has months but no 岁: it may be an age, such as 6个月以下, or a time, such as 连用2个月.
    """
    years: dict[str, tuple[float, float]] = {}
    for sentence in sentences:
        if "岁" in sentence:
            spans = _SPAN.findall(sentence)
            if len(spans) != 1 or sentence.count("岁") != spans[0].count("岁") or _OPEN.search(sentence):
                return {}
            years[sentence] = _years(*spans[0])
    by_age = {}
    ages = {f"{halves // 2}岁{'半' * (halves % 2)}": halves / 2 for halves in range(2, 2 * _OLDEST)}
    if not any("月" in sentence and "岁" not in sentence for sentence in sentences):
        ages |= {f"{months}个月": months / 12 for months in range(2, 12)}
    for shown, age in ages.items():
        inside = [sentence for sentence, (least, most) in years.items() if least <= age <= most]
        if len(inside) == 1 and age not in years[inside[0]]:
            by_age[shown] = inside[0]
    return by_age


def _years(first: str, first_unit: str, last: str, unit: str, side: str) -> tuple[float, float]:
    most = int(last) / (1 if unit == "岁" else 12)
    if first or not side:
        return (int(first) / (1 if (first_unit or unit) == "岁" else 12) if first else most), most
    return (most, math.inf) if side.endswith("上") else (0.0, most)
