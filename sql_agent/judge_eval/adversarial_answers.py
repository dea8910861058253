"""Turn a reference answer into false answers, for which a judge must not pay.

Most of them contain every word of the reference, but deny it, add to it, or state it about something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random

from sql_agent.judge_eval.equivalent_answers import Subject, Transformation, wordings

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?!\d|[.．、)）]\D)")  # "1." before a word numbers a list
_QUOTED = re.compile(r"'%?([^'%]+)%?'")
# Letters that look alike: Latin and Cyrillic; Chinese characters and their radicals or old forms.
_LOOKALIKES = str.maketrans("aceopxyiASBEHKMOPCTX非不无没错", "асеорхуіАЅВЕНКМОРСТХ⾮不⽆沒錯")
_SALAD_WORDS = 6  # minimum number of shuffled words: fewer words may be understood in any order


def negated(subject: Subject, rng: Random) -> str | None:
    """Say that the answer is wrong."""
    return _put(rng.choice(subject.words.statements), subject.answer)


def flipped(subject: Subject, _: Random) -> str | None:
    """Say no where yes is right, and yes where no is right."""
    opposites = {word: other for pair in subject.words.opposites for word, other in (pair, pair[::-1])}
    return opposites.get(subject.answer.casefold())


def yes_and_no(subject: Subject, rng: Random) -> str | None:
    opposite = flipped(subject, rng)
    return opposite and subject.joined(rng.sample([subject.answer, opposite], 2))


def facts_negated(subject: Subject, rng: Random) -> str | None:
    """Negate, cross out or restrict each fact."""
    frame = rng.choice(subject.words.frames)
    return subject.joined(_put(frame, fact) for fact in subject.facts)


def one_fact_negated(subject: Subject, rng: Random) -> str | None:
    """Negate, cross out or restrict one fact of several."""
    return _change_one(subject, rng, lambda fact: _put(rng.choice(subject.words.frames), fact))


def sentence_appended(subject: Subject, rng: Random) -> str | None:
    """Add a verdict, dangerous advice, an order to the judge or a refusal, before or after a right answer."""
    words = subject.words
    sentences = [*words.verdicts, *words.dangers, *words.orders]
    if subject.refusal and subject.refusal != subject.answer:
        sentences.append(subject.refusal)
    return rng.choice([subject.separator, "\n", " "]).join(rng.sample([subject.answer, rng.choice(sentences)], 2))


def refused(subject: Subject, _: Random) -> str | None:
    """Refuse although the database has the answer."""
    return None if subject.refusal == subject.answer else subject.refusal


def all_options(subject: Subject, rng: Random) -> str | None:
    """Offer the right answer and a wrong answer, and leave the choice open."""
    return subject.other_answer and _put(rng.choice(subject.words.choices), subject.answer, subject.other_answer)


def all_items_for_each(subject: Subject, _: Random) -> str | None:
    owned = _disjoint(subject)
    items = [item for _, of_one in owned for item in of_one]
    return subject.of_owners((name, items) for name, _ in owned) if owned else None


def owners_swapped(subject: Subject, _: Random) -> str | None:
    """Give the items of each name to another name: "A: x; B: y" becomes "B: x; A: y"."""
    if not (owned := _disjoint(subject)):
        return None
    names, items = zip(*owned, strict=True)
    return subject.of_owners(zip(names[1:] + names[:1], items, strict=True))


def another_owner(subject: Subject, rng: Random) -> str | None:
    name = max(_QUOTED.findall((subject.other and subject.other.sql) or ""), key=len, default="")
    # If a question takes two steps, the name that the first step finds is right, and is only in the SQL.
    right = f"{subject.question.question}{subject.question.sql or ''}{subject.answer}".casefold()
    if not name or name.casefold() in right or name.casefold() in map(str.casefold, subject.names):
        return None
    owned = subject.owned
    if owned is None:
        return subject.of_owners([(name, subject.facts)])
    renamed = rng.randrange(len(owned))
    return subject.of_owners([(name if i == renamed else owner, items) for i, (owner, items) in enumerate(owned)])


def labelled(subject: Subject, rng: Random) -> str | None:
    """Put a text that is no name before the facts, as a label."""
    names = set(map(str.casefold, subject.names))
    texts = [text for text in subject.other_facts if not text.isdigit() and text.casefold() not in names]
    return subject.of_owners([(rng.choice(texts), subject.facts)]) if texts and subject.owned is None else None


def number_marked(subject: Subject, rng: Random) -> str | None:
    """Put a sign, a unit or another number beside a count."""
    if not subject.answer.isdigit():
        return None
    marks = ("> {n}", "≥{n}", "~{n}", "{next}、{n}", "{next}/{n}", "负{n}", "{n}元", "No. {next}: {n}")
    return _fill(rng.choice(marks), {"{n}": subject.answer, "{next}": str(int(subject.answer) + 1)})


def values_of_another(subject: Subject, _: Random) -> str | None:
    return subject.other_answer


def one_value_of_another(subject: Subject, rng: Random) -> str | None:
    others = subject.other_facts
    return _change_one(subject, rng, lambda _: rng.choice(others)) if others else None


def values_of_another_appended(subject: Subject, _: Random) -> str | None:
    return subject.joined([*subject.facts, *subject.other_facts]) if subject.other_facts else None


def number_widened(subject: Subject, rng: Random) -> str | None:
    """Give a range instead of a number."""

    def widen(number: str) -> str:
        end = {"{n}": number, "{next}": str(int(float(number)) + 1), "{far}": str(10 * int(float(number)) + 10)}
        return _fill(rng.choice(subject.words.wider), end)

    return _change_number(subject, rng, widen)


def number_changed(subject: Subject, rng: Random) -> str | None:

    def change(number: str) -> str | None:
        return rng.choice(forms)(number) if float(number) else None  # 00 and 0.0 are the same number as 0

    forms: list[Callable[[str], str]] = [
        lambda n: str(int(float(n)) + 1),
        lambda n: f"{n}0" if "." not in n else n.replace(".", ""),
        lambda n: f"0.{n.replace('.', '')}",
        lambda n: f"{n}½",
        lambda n: n[:-1] + "⁰¹²³⁴⁵⁶⁷⁸⁹"[int(n[-1])] if len(n) > 1 and "." not in n else f"{n}{n}",
    ]
    return _change_number(subject, rng, change)


def unit_changed(subject: Subject, rng: Random) -> str | None:
    """Give a number in another unit, or a count with a unit."""
    if subject.answer.isdigit():
        return _fill(rng.choice(subject.words.counted), {"{n}": subject.answer}) if int(subject.answer) else None
    for unit, other in subject.words.units:
        end = r"(?![^\W\d_])" if unit.isascii() and subject.lang == "en" else r"(?![a-zA-Z])"
        changed = re.sub(rf"(?<=\d)(\s?){re.escape(unit)}{end}", rf"\g<1>{other}", subject.answer, count=1)
        if changed != subject.answer:
            return changed
    return None


def another_kind_counted(subject: Subject, _: Random) -> str | None:
    asked = subject.question.question.casefold()
    kinds = {kind for word, kind in subject.words.kinds if word in asked}
    if not subject.answer.isdigit() or len(kinds) != 1:
        return None
    return f"{subject.answer} {kinds.pop()}" if subject.lang == "en" else f"{subject.answer}{kinds.pop()}"


def question_echoed(subject: Subject, rng: Random) -> str | None:
    pair = [subject.question.question, subject.answer]
    return rng.choice([" ", "\n"]).join(rng.sample(pair, 2))


def repeated(subject: Subject, rng: Random) -> str | None:
    return rng.choice(["\n", subject.separator]).join([subject.answer] * 10)


def word_salad(subject: Subject, rng: Random) -> str | None:
    """Shuffle the words of all facts."""
    words = subject.answer.split() if subject.lang == "en" else list(subject.answer)
    words = [word for part in words if (word := part.strip(" ;；、,:："))]
    shuffled = rng.sample(words, len(words))
    mixed = len(set(words)) >= _SALAD_WORDS and shuffled != words
    return (" " if subject.lang == "en" else "").join(shuffled) if mixed else None


def negated_in_disguise(subject: Subject, rng: Random) -> str | None:
    """Negate in look-alike letters, with invisible characters between the letters, or in another language."""
    others = [words for lang, words in wordings().items() if lang != subject.lang]
    before, _, after = rng.choice(subject.words.facts).partition("{}")
    frames = [
        rng.choice(subject.words.statements).translate(_LOOKALIKES),
        "\u200b".join(before) + "{}" + "\u200b".join(after),
        rng.choice(rng.choice(others).statements),
    ]
    return _put(rng.choice(frames), subject.answer)


def order_to_the_judge(subject: Subject, rng: Random) -> str | None:
    """Give a wrong answer and ask the judge for full marks."""
    return subject.other_answer and f"{subject.other_answer}\n{rng.choice(subject.words.orders)}"


FALSE: tuple[Transformation, ...] = (
    negated, flipped, yes_and_no, facts_negated, one_fact_negated, sentence_appended, refused, all_options,
    all_items_for_each, owners_swapped, another_owner, values_of_another, one_value_of_another,
    values_of_another_appended, number_widened, number_changed, unit_changed, number_marked, labelled,
    another_kind_counted, question_echoed, repeated, word_salad, negated_in_disguise, order_to_the_judge,
)  # fmt: skip


def _fill(frame: str, values: Mapping[str, str]) -> str:
    return re.sub("|".join(map(re.escape, values)), lambda match: values[match[0]], frame)


def _put(frame: str, answer: str, other: str = "") -> str:
    return _fill(frame, {"{}": answer, "{other}": other})


def _change_one(subject: Subject, rng: Random, change: Callable[[str], str]) -> str | None:
    facts = subject.facts
    if len(facts) < 2:
        return None
    changed = rng.randrange(len(facts))
    return subject.joined(change(fact) if i == changed else fact for i, fact in enumerate(facts))


def _change_number(subject: Subject, rng: Random, change: Callable[[str], str | None]) -> str | None:
    found = list(_NUMBER.finditer(subject.answer))
    if not found:
        return None
    match = rng.choice(found)
    changed = change(match[0])
    return changed and subject.answer[: match.start()] + changed + subject.answer[match.end() :]


def _disjoint(subject: Subject) -> list[tuple[str, list[str]]]:
    """Return the names and items of "A: x; B: y"; [] for another form, or if an item occurs twice."""
    owned = subject.owned or []
    items = [item for _, of_one in owned for item in of_one]
    return owned if len(set(items)) == len(items) else []
