"""English words without spelling variants and endings, so that "ischemic" is "ischaemic" and "recurs" "recurrence"."""

from __future__ import annotations

import re
from functools import lru_cache

_SPELLINGS = (
    (re.compile(r"[ao]e"), "e"),  # anaemia, oedema
    (re.compile(r"our"), "or"),  # tumour
    (re.compile(r"ph"), "f"),  # cephalexin, sulphate
    (re.compile(r"(?<=\w)y(?=\w)"), "i"),  # cyclosporin
    (re.compile(r"(?<=\w{3}i)s(?=(?:e[drs]?|ing|ations?)$)"), "z"),  # organise, paralysed
)
_IES = re.compile(r"(?<=\w{2})ies$")
_PLURAL = re.compile(r"(?<=[^siu])s$")  # not the s of loss, thrombosis, virus
# The longest first; what stays has at least four letters, so that short words and most drug names keep theirs.
_ENDINGS = sorted(
    (
        *("es", "ed", "ing", "ly", "ally", "y", "i", "e", "a", "al", "ia", "ic", "ical", "ous", "ful", "er", "ness"),
        *(
            "ion",
            "ation",
            "ate",
            "at",
            "ative",
            "ive",
            "iv",
            "ity",
            "ment",
            "ant",
            "ent",
            "ance",
            "ence",
            "ancy",
            "ency",
        ),
        *("able", "ably", "ible", "ibly", "ory", "atory", "ator"),
    ),
    key=len,
    reverse=True,
)
_IRREGULAR = {
    "frozen": "freeze", "froze": "freeze", "taken": "take", "took": "take", "given": "give", "gave": "give",
    "swollen": "swell", "lost": "lose", "loss": "lose", "bled": "bleed", "risen": "rise", "rose": "rise",
    "kept": "keep", "children": "child", "women": "woman", "men": "man", "worse": "worsen", "worst": "worsen",
    "used": "use", "using": "use", "lenses": "lens", "eaten": "eat", "ate": "eat", "drunk": "drink", "broken": "break",
}  # fmt: skip
_WHOLE = frozenset(("former", "latter", "later", "lens"))  # not "form" and "late" again
_SHORTEST = 4
_SHORT_ENDINGS = ("e", "y", "i", "ly", "ed", "ing")  # may leave three letters: rare, rarely, itchy, itching
_DOUBLED = re.compile(r"([b-df-hj-np-rtv-z])\1$")  # stopp(ing)


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a lower-case English word: equal for the forms and the spellings of one word."""
    if word in _WHOLE:
        return word
    word = _IRREGULAR.get(word, word)
    for pattern, spelling in _SPELLINGS:
        word = pattern.sub(spelling, word)
    word = _PLURAL.sub("", _IES.sub("y", word)) if len(word) > 3 else word
    while (shorter := _without_ending(word)) != word:
        word = _DOUBLED.sub(r"\1", shorter)
    return _DOUBLED.sub(r"\1", word)


def _without_ending(word: str) -> str:
    for ending in _ENDINGS:
        kept = word[: -len(ending)]
        if word.endswith(ending) and len(kept) >= (3 if ending in _SHORT_ENDINGS else _SHORTEST):
            return kept
    return word
