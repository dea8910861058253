"""Decide by rules whether a person would accept an answer in any form.

An answer is correct if the queries read its evidence (if a refusal is right: searched for what is asked), and

    if the reference has facts: the answer contains every fact (or enough of them) as whole words, in a clause without
        negation, and after the fact's owner, if any; it contains no other value of the column asked for and no wrong
        item of a list; the question, the reference or the evidence contains each number of the answer; amounts are
        compared as `Reader.amounts` shows them, and a figure need not repeat the words of the question
    if the reference is yes or no: the answer begins with that word and does not contain the other word
    if the reference is a number: the answer contains this number, no other number, and no word such as "about"
    if the reference is a refusal: all items of the answer but one contain a negation, and none a value or a number

The decision is a metric and earns nothing: the judge "facts" rewards only a form that can be verified.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sql_agent.reward import JudgeCase
from sql_agent.reward.judges.items import Reader, normalise
from sql_agent.reward.judges.reference_parser import Cells, Fact, has_looked, reference_facts
from sql_agent.schemas import Question

_NUMBER = re.compile(r"\[\d[^]]*\]|\d+(?:[.,]\d+)*")  # also an amount, such as "[2tablet/a day]"
_LIST_NUMBER = re.compile(r"(?<![\d.])\d{1,2}[.)、](?=\s|[㐀-鿿])")
_NUMERAL = re.compile(r"[a-z]+|[一二两三四五六七八九十百]+(?=[种个项条类])")
_INEXACT = re.compile(
    r"\b(?:more|less|fewer|over|under|about|around|nearly|at least|at most|not|none of|or)\b"
    r"|不止|不是|约|至少|至多|超过|不到|以上|以下|第"
)
_CLAUSE = re.compile(r"[.;:。；：！？!?\n]|[,，](?=[\s\[㐀-鿿])|\bbut\b|但")
_NEGATIVE = re.compile(
    r"\b(?:no|not|none|nothing|never|without|neither|nor|except|cannot|unable|unknown)\b|n't|没|无|未|不|非|除"
)
_ITEM = re.compile(r"[;；、\n]")
_EITHER = re.compile(r"还是|\bor\b")
_MORE = re.compile(rf"{_NUMBER.pattern}|thousand|million|billion|[千万亿]")  # what changes a number beside it
_SHORTEST = 3  # minimum length of a value; a shorter value can be part of other words


def is_correct(case: JudgeCase, reader: Reader, cells: Cells) -> bool:
    """Return whether the answer of `case` is correct. Raises JudgeError if the reference has no facts."""
    question, text = case.question, _LIST_NUMBER.sub(" ", normalise(case.answer))
    if reader.is_refusal(question.answer):
        denies = [_NEGATIVE.search(item) is not None for item in _ITEM.split(text) if item.strip()]
        if not has_looked(case) or not any(denies) or denies.count(False) > 1:
            return False
        return not _said_numbers(case, text, reader) and not _others(case, reader.amounts(text), (), reader)
    conclusion = reader.number_or_yes_no(question.answer, question.question)
    if conclusion is not None and conclusion.isalpha():
        opposite = next(word for word in reader.words.yes_no if word != conclusion)
        is_both = any(_whole(form).search(text) for form in reader.forms(opposite) if len(form) > 1)
        return reader.begins_with(text) == conclusion and not is_both and cells.support(conclusion)
    if conclusion is not None:
        is_exact = _INEXACT.search(text) is None
        return is_exact and _said_numbers(case, text, reader) == {conclusion} and cells.support(conclusion)
    facts, asked = _with_owners(question, reader), normalise(question.question)
    if len(facts) == len(facts[0].items) == 1:
        text = _completed(text, facts[0].items[0], asked, reader)
    if any(_NUMBER.search(reader.amounts(item)) for fact in facts for item in fact.items):
        text = reader.amounts(text)
    may_deny = _NEGATIVE.search(asked) is not None
    read = ([f for f in facts if _mentions(text, f, facts, reader, may_deny=may_deny, behind=b)] for b in (False, True))
    given = max(read, key=len)
    if len(given) < (question.enough or len(facts)):
        return False
    was_read = all(cells.show(item) for fact in given[: question.enough] for item in fact.items)
    return was_read and not _others(case, text, facts, reader)


def _with_owners(question: Question, reader: Reader) -> list[Fact]:
    """Return the facts of the reference. If each has a number after its first item, that one is its owner."""
    facts = reference_facts(question, reader)
    firsts = {fact.items[0] for fact in facts if not fact.owner and _NUMBER.search(" ".join(fact.items[1:]))}
    by_first = len(firsts) == len(facts) > 1  # "infants, 5 ml; adults, 9 ml"
    return [Fact(fact.items, reader.amounts(fact.items[0] if by_first else fact.owner)) for fact in facts]


def _completed(answer: str, item: str, asked: str, reader: Reader) -> str:
    """Return `item` if `answer` is a part of `item` with all of its numbers, and the question `asked` has the rest.

    Else return `answer`.
    """
    if _EITHER.search(asked):
        return answer
    amounts = (reader.amounts(text) for text in (answer, reader.only_scope(asked) + answer))
    forms = [(answer, item), *((amount, reader.amounts(item)) for amount in amounts)]
    for given, whole in forms:
        if _NUMBER.search(given) and given in whole:
            before, _, after = whole.partition(given)
            if before in asked and after in asked and not _MORE.search(before + after):
                return item
    return answer


def _mentions(text: str, fact: Fact, facts: Iterable[Fact], reader: Reader, *, may_deny: bool, behind: bool) -> bool:
    """Return whether `text` has all items of `fact`; if the fact has an owner, between that owner and the next one.

    With `behind`, the items stand between the previous owner and this owner.
    With `may_deny`, an item in a clause with a negation counts too, because the question itself has a negation.
    """
    if owner := fact.owner:
        start = text.find(owner)
        if start < 0:
            return False
        others = {other.owner for other in facts} - {owner}
        end = start + len(owner)
        before = (at + len(other) for other in others if 0 <= (at := text.find(other)) < start)
        after = (at for other in others if (at := text.find(other, end)) >= 0)
        text = text[max(before, default=0) : end] if behind else text[start : min(after, default=len(text))]
    forms = ([reader.amounts(form) for form in reader.forms(item)] for item in fact.items)
    return all(any(_stands_in(form, text, may_deny=may_deny) for form in of_item) for of_item in forms)


def _stands_in(item: str, text: str, *, may_deny: bool = True) -> bool:
    clauses = (_CLAUSE.split(text[: match.start()])[-1] for match in _whole(item).finditer(text))
    return any(may_deny or _NEGATIVE.search(clause) is None for clause in clauses)


def _whole(item: str) -> re.Pattern[str]:
    """Return a pattern that matches `item` only as a whole word or number."""
    before = r"(?<![a-z0-9<>≤≥第])" if item[:1].isascii() else ""
    after = r"(?![/半])" if item[-1:] == "]" else r"(?![a-z0-9])" if item[-1:].isascii() else ""
    return re.compile(f"{before}{re.escape(item)}{after}")


def _said_numbers(case: JudgeCase, text: str, reader: Reader) -> set[str]:
    """Return, as digits, the numbers of the answer that are not in the question; `text` is the normalised answer."""
    asked = normalise(case.question.question)
    whole = reader.number_or_yes_no(case.answer, case.question.question)
    if whole is not None and not whole.isalpha():
        return {whole}
    digits = {number.replace(",", "") for number in _NUMBER.findall(text) if number not in asked}
    words = (word for word in _NUMERAL.findall(text) if word not in asked)
    read = (reader.number_or_yes_no(word, "") for word in words)
    return digits | {number for number in read if number is not None and not number.isalpha()}


def _others(case: JudgeCase, text: str, facts: Iterable[Fact], reader: Reader) -> list[str]:
    """Return what the answer adds to the reference: values of the column asked for, numbers, and items of a list.

    `text` is the normalised answer with its amounts, and `facts` are the facts of the reference.
    """
    question = case.question
    right = [reader.amounts(form) for fact in facts for item in fact.items for form in reader.forms(item)]
    names = [normalise(name) for of_row in case.row_names for name in of_row]
    asked = reader.amounts(" ; ".join([normalise(question.question), *names]))
    known = " ; ".join([asked, *right, *(fact.owner for fact in facts)])
    rest = _without(text, right)
    fields = {item.field.casefold() for item in question.evidence}
    cells = [
        (column.casefold(), cell)
        for call in case.calls
        for record in call.answer.records
        for column, cell in zip(call.answer.columns, record, strict=False)
        if isinstance(cell, str)
    ]
    shown = [cell for column, cell in cells if column in fields or not question.evidence]
    values = {
        value
        for cell in shown
        for item in reader.items(cell)
        if len(item) >= (_SHORTEST if item.isascii() else _SHORTEST - 1)
        and (value := reader.amounts(item)) not in known
    }
    alike = _alike(cells, facts, reader) - set(right)
    unasked = {other for other in alike if other not in asked}
    values |= unasked
    if right and all(map(_NUMBER.search, right)):  # other words of an amount's own cell may be repeated
        own = " ; ".join(cell for cell in map(reader.amounts, map(normalise, shown)) if any(i in cell for i in right))
        words = {value for value in values if _NUMBER.search(value) is None and value in own}
        values, known = values - words, " ; ".join([known, *words])
    quoted = " ".join(reader.amounts(normalise(item.quote)) for item in question.evidence)
    numbers = [n for n in _NUMBER.findall(rest) if n not in known and n not in quoted] if right else []
    owners = {fact.owner for fact in facts}
    parts = ((item, *item.partition(":")) for item in reader.items(case.answer))
    items = [reader.amounts(value if name in owners else item) for item, name, _, value in parts]
    is_list = any(item in right for item in items)
    allowed = {item for item in items if item in known or any(form in item for form in right)} - alike
    beside = [item for item in items if is_list and item not in allowed]
    longer = [other for other in unasked if any(form in other for form in right) and _stands_in(other, text)]
    return [value for value in values if _stands_in(value, rest)] + numbers + beside + longer


def _alike(cells: Iterable[tuple[str, str]], facts: Iterable[Fact], reader: Reader) -> set[str]:
    """Return the cells of each column in which every fact is a whole cell, such as a column of names.

    `cells` are pairs of a column and a cell that a query has read.
    """
    of_column: dict[str, set[str]] = {}
    for column, cell in cells:
        of_column.setdefault(column, set()).add(reader.amounts(normalise(cell)))
    wanted = [{reader.amounts(form) for item in fact.items for form in reader.forms(item)} for fact in facts]
    return set().union(*(each for each in of_column.values() if wanted and all(forms & each for forms in wanted)))


def _without(text: str, items: Iterable[str]) -> str:
    for item in sorted(items, key=len, reverse=True):
        text = _whole(item).sub(" ", text)
    return text
