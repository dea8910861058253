"""Find the other names of a drug or a disease: those that its description tells, and those that people know."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache

from sql_agent.tasks.medical.phrasing import PHRASINGS_DIR

_MAX_CHARS = 60
# "别名：甲；乙；性状：…": a label, then names up to the next label or sentence.
_LABELLED = re.compile(
    r"(?:别名|别称|又名|又称|俗称|亦称|也称|简称|商品名|通用名称?|英文名称?)\s*[：:](?P<names>.*?)"
    r"(?=[；;][^；;：:]{1,10}[：:]|[。\n]|$)"
)
_IN_PROSE = re.compile(r"(?:又名|又称|俗称|亦称|也称|别名|商品名)为?(?P<names>[^：:，。；,;()（）\n]+)")
_IN_ENGLISH = re.compile(
    r"\b(?:also (?:called|known as)|(?:brand|trade) names?(?: is| are)?:?|sold as)\s+(?P<names>[^.;()\n]+)",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"[；;、,，/]|\s(?:and|or)\s")


@cache
def everyday_names() -> Mapping[str, tuple[str, ...]]:
    """Return everyday names and brands of all languages by the formal name, from the phrase banks' `names.toml`."""
    called: dict[str, tuple[str, ...]] = {}
    for path in sorted(PHRASINGS_DIR.glob("*/names.toml")):
        for name, others in tomllib.loads(path.read_text(encoding="utf-8"))["called"].items():
            called[name] = (*called.get(name, ()), *others)
    return called


def aliases_in(text: str) -> Iterator[str]:
    """Yield the names that `text` introduces as another name, a brand or the name in English."""
    for pattern in (_LABELLED, _IN_PROSE, _IN_ENGLISH):
        for match in pattern.finditer(text):
            for name in _BETWEEN.split(match["names"]):
                if name.strip(" “”\"'") and len(name) <= _MAX_CHARS:
                    yield name.strip(" “”\"'")
