"""Say what the reference answer says in another form; a judge must pay for each as for the reference."""

from __future__ import annotations

from random import Random

from sql_agent.judge_eval.transformations.subject import Subject, Transformation


def as_it_is(subject: Subject, _: Random) -> str | None:
    """Give the reference answer."""
    return subject.answer


def another_order(subject: Subject, rng: Random) -> str | None:
    """Shuffle the facts, and the items of each name."""
    if subject.owned:
        owned = [(name, rng.sample(items, len(items))) for name, items in subject.owned]
        return subject.of_owners(rng.sample(owned, len(owned)))
    return subject.joined(rng.sample(subject.facts, len(subject.facts)))


def one_a_line(subject: Subject, _: Random) -> str | None:
    """Write each fact on a line of its own."""
    return "\n".join(subject.facts)


def bullets(subject: Subject, rng: Random) -> str | None:
    """Write the facts as a list with bullets."""
    mark = rng.choice("-*•")
    return "\n".join(f"{mark} {fact}" for fact in subject.facts)


def numbered(subject: Subject, rng: Random) -> str | None:
    """Write the facts as a numbered list."""
    mark = rng.choice([".", ")"])
    return "\n".join(f"{number}{mark} {fact}" for number, fact in enumerate(subject.facts, 1))


def capitals(subject: Subject, _: Random) -> str | None:
    """Write everything in capitals."""
    return subject.answer.upper()


def full_width(subject: Subject, _: Random) -> str | None:
    """Write Latin letters, digits and signs as wide as Chinese characters."""
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in subject.answer)


def comma_list(subject: Subject, _: Random) -> str | None:
    """Part the facts with commas."""
    return subject.listed(subject.facts)


def full_stop(subject: Subject, _: Random) -> str | None:
    """End with a full stop."""
    stop = "." if subject.lang == "en" else "。"
    return f"{subject.answer}{stop}" if not subject.answer.endswith(stop) else None


HARMLESS: tuple[Transformation, ...] = (
    as_it_is, another_order, one_a_line, bullets, numbered, capitals, full_width, comma_list, full_stop,
)  # fmt: skip
