"""Puts drafts into the words of people: someone in a situation asks in their own way; no text comes twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from sql_agent.database.schema import fold
from sql_agent.questions.rewrite_checks import Half
from sql_agent.tasks.medical.banks import Asks, Wordings
from sql_agent.tasks.medical.questions.draft import LISTS, Condition, Corpus, Draft, name_is
from sql_agent.tasks.medical.questions.misses import Misses
from sql_agent.tasks.medical.questions.naming import Namer, renamed, renamed_pair
from sql_agent.tasks.medical.questions.passing import InPassing

# How many compositions are tried until one is new.
TRIES = 12
# How often a question has what it may have.
AFTER_SHARE = 0.5
OPENER_SHARE = 0.2
TAIL_SHARE = 0.25
EVERYTHING_SHARE = 0.5
LEAD_IN_SHARE = 0.4
CLASS_SHARE = 0.15
NO_FULL_STOP_SHARE = 0.3
# The types whose answer may be a list, or the refusal in place of one.
LIST_TYPES = frozenset(
    {"drug_field", "disease_field", "part_of_field", "keyword_search", "two_conditions", "negation", "two_hops",
     "disease_to_drugs", "unanswerable"}
)  # fmt: skip
_MARKS = "，。？！：；…,?!:"

Worded = tuple[str, str]


class Composer:
    """Words the drafts of one split, and says which SQL finds the row as the text names it."""

    def __init__(self, source: Corpus, namer: Namer, half: Half, used: set[str]) -> None:
        """`half` says which wordings may be used; texts in `used` are taken already, and new ones are added."""
        self._banks = source.natural
        self._columns = source.wording.columns
        self._lang = source.catalog.lang
        self._rng = source.rng
        self._namer = namer
        self._misses = Misses(source, namer)
        self._passing = InPassing(self._banks.passing, source.catalog, half)
        self._half = half
        self._used = used

    def word(self, draft: Draft) -> Worded | None:
        """Return a new text with its SQL, or None when the banks have no words for the draft or all are used up."""
        asks = self._asks(draft)
        if asks is None:
            return None
        for _ in range(TRIES):
            text, sql = self._compose(draft, asks)
            if text not in self._used and not any(fold(word) in fold(text) for word in draft.unsaid):
                self._used.add(text)
                return text, sql
        return None

    def _compose(self, draft: Draft, asks: Asks) -> Worded:
        slots, sql = self._named(draft)
        said = {condition: self._misses.said(condition) for condition in draft.conditions}
        for slot, condition in zip(("first", "second"), draft.conditions, strict=False):
            slots[slot] = self._predicate(condition, said[condition])
        if draft.second:
            slots["second"] = self._rng.choice(draft.second.of(self._half)).format(**slots).rstrip("的")
        if draft.conditions:
            slots["rows"] = self._rng.choice(self._banks.searches.rows[draft.conditions[0].table])
        if draft.column:
            table, column = draft.column
            slots["field"] = self._rng.choice(self._columns[table].get(column, [column]))
            if clauses := self._clauses(draft.column):
                slots["clause"] = self._rng.choice(clauses)
        if kinds := self._passing.kinds(draft):
            slots["kind"] = self._rng.choice(kinds)
        text = self._join(
            *self._maybe(self._banks.situations.openers, OPENER_SHARE),
            *self._lead_in(draft, kinds),
            *self._sentences(asks, self._situations(draft, kinds), slots),
            *self._maybe(self._tails(draft), TAIL_SHARE),
        )
        if self._rng.random() < NO_FULL_STOP_SHARE:
            text = text.rstrip("。？?.！!")
        sql = self._misses.before(draft, sql, text, said)
        return text[0].upper() + text[1:] if self._rng.random() < 0.5 else text, sql

    def _named(self, draft: Draft) -> tuple[dict[str, str], str]:
        """Return the slots with the names as the question writes them, and the SQL that finds the rows by these."""
        sql = self._rng.choice((draft.sql, *draft.other_sql))
        slots = dict(draft.slots)
        if draft.pair:
            namings = [self._namer.choose(entity, self._rng) for entity in draft.pair]
            slots["name"], slots["other"] = (naming.asked for naming in namings)
            return slots, renamed_pair(sql, draft.pair, namings)
        # A join that compares names by LIKE takes minutes.
        if draft.subject and name_is(draft.subject) in sql and " JOIN " not in sql:
            naming = self._namer.choose(draft.subject, self._rng)
            slots["name"], sql = naming.asked, renamed(sql, draft.subject, naming)
        return slots, sql

    def _join(self, *parts: str) -> str:
        """Return the parts one after the other; in Chinese with a comma after one that ends without a mark."""
        if self._lang == "en":
            return " ".join(parts).strip()
        *before, last = parts
        return "".join(part if part[-1] in _MARKS else f"{part}，" for part in before) + last

    def _situations(self, draft: Draft, kinds: list[str]) -> tuple[str, ...]:
        """Return what may have happened before the question; now and then its drug is named with its class."""
        with_class = self._passing.situations(kinds) if self._rng.random() < CLASS_SHARE else ()
        return with_class or self._banks.situations.about(self._table(draft)).of(self._half)

    def _sentences(self, asks: Asks, situations: Sequence[str], slots: dict[str, str]) -> list[str]:
        """Return the situation and what is asked after it, or one sentence that asks for all."""
        if asks.after and (not asks.named or self._rng.random() < AFTER_SHARE):
            after = self._rng.choice(asks.after)
            personal = any(slot in after for slot in ("{they}", "{them}", "{their}"))
            situation = self._rng.choice([text for text in situations if "{asker}" in text or not personal])
            asker = self._rng.choice(self._banks.situations.askers.of(self._half))
            people = {"asker": asker.who, "they": asker.they, "them": asker.them, "their": asker.their}
            return [situation.format(**slots, **people), after.format(**slots, **people)]
        return [self._rng.choice(asks.named).format(**slots)]

    def _lead_in(self, draft: Draft, kinds: list[str]) -> list[str]:
        """Return why somebody asks about two rows or searches for some, which names nothing to look for."""
        if draft.pair:
            said = self._passing.before_a_pair(draft.pair[0].table, kinds, self._rng)
            return [said] if self._rng.random() < LEAD_IN_SHARE else []
        if not draft.conditions or draft.slots.get("names"):
            return []
        return self._maybe(self._banks.searches.lead_ins[draft.conditions[0].table], LEAD_IN_SHARE)

    def _maybe(self, halves: Wordings, share: float) -> list[str]:
        return [self._rng.choice(halves.of(self._half))] if self._rng.random() < share else []

    def _tails(self, draft: Draft) -> Wordings:
        """Return what may end the question; one for a list may ask for all of it, however long the list is."""
        told = self._banks.situations
        has_list = draft.column is None or draft.column[1] in LISTS[draft.column[0]]
        lists_all = has_list and draft.enough is None and draft.task_type in LIST_TYPES
        return told.everything if lists_all and self._rng.random() < EVERYTHING_SHARE else told.tails

    def _predicate(self, condition: Condition, said: tuple[str, ...]) -> str:
        predicates = self._banks.patterns.said_of(condition.table, condition.column)
        if predicates is None:
            raise AssertionError(f"no words for {condition.column}")
        halves = predicates.holds if condition.holds else predicates.lacks
        one, *others = said
        either = self._rng.choice(self._banks.searches.either.of(self._half))
        keyword = either.format(one=one, other=others[0]) if others else one
        text = self._rng.choice(halves.of(self._half)).format(keyword=keyword)
        return text.rstrip("的")  # which the sentence adds where it needs it

    def _clauses(self, column: tuple[str, str]) -> tuple[str, ...]:
        table, name = column
        halves = self._banks.patterns.clauses[table].get(name)
        return halves.of(self._half) if halves else ()

    def _table(self, draft: Draft) -> str:
        if draft.subject:
            return draft.subject.table
        return draft.column[0] if draft.column else "drugs_info"

    def _asks(self, draft: Draft) -> Asks | None:
        """Return the sentences of the bank that fit the draft, if it has all words that they need."""
        patterns = self._banks.patterns
        if any(patterns.said_of(part.table, part.column) is None for part in draft.conditions):
            return None
        if draft.pool in patterns.pools:
            asks = patterns.pools[draft.pool].of(self._half)
            no_clause = draft.column and not self._clauses(draft.column)
            return None if no_clause and "{clause}" in "".join((*asks.named, *asks.after)) else asks
        if draft.column is None:
            return None
        table, column = draft.column
        if kind := draft.pool.removeprefix("lacking ") if draft.pool.startswith("lacking ") else None:
            return patterns.lacking[table][kind].of(self._half)
        return self._asks_of_column(draft.pool, table, column)

    def _asks_of_column(self, pool: str, table: str, column: str) -> Asks | None:
        about, _, name = pool.partition(" ")
        if about == "claim":
            return self._banks.claims[table][name].of(self._half)
        if about == "opposite":
            opposite = self._banks.claims[table][name].opposite
            return opposite.of(self._half) if opposite else None
        if about in {"topic", "topics"}:
            return self._rng.choice(self._banks.topics.asks[table][column].about(name, self._half))
        if about in {"kind", "rest"}:
            asks = self._banks.kinds.asks[table][column]
            return (asks.own if about == "kind" else asks.own_rest)[name].of(self._half)
        pools = self._banks.patterns.yes_no[table] if pool == "yes_no" else self._banks.asks[table]
        return pools[column].of(self._half) if column in pools else None


def mixed(
    formal: Callable[[Draft], Worded | None],
    natural: Callable[[Draft], Worded | None],
    formal_share: float,
    rng: random.Random,
) -> Callable[[Draft], Worded | None]:
    """Word `formal_share` of the drafts by templates, and those that the other way has no words for."""

    def word(draft: Draft) -> Worded | None:
        first, second = (formal, natural) if rng.random() < formal_share else (natural, formal)
        return first(draft) or second(draft)

    return word
