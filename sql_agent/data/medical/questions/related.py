"""Which drugs go with a disease: by the drugs' indications, and by the disease's treatment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sql_agent.data.medical.questions.catalog import Catalog, Entity, EntityKey

# More names than this make a poor answer.
MAX_DRUGS = 8


@dataclass(frozen=True)
class DiseaseDrugs:
    """A disease and the drugs that one of the joins finds for it; `pool` names the join and its phrasings."""

    pool: str
    disease: Entity
    drugs: tuple[Entity, ...]

    @property
    def entities(self) -> frozenset[EntityKey]:
        return frozenset({self.disease.key, *(drug.key for drug in self.drugs)})


def relations(catalog: Catalog) -> list[DiseaseDrugs]:
    """All relations with 1 to 8 drugs where what LIKE finds is what the texts mean: a name inside a longer word or
    name ("hypertension" in "pulmonary hypertension") makes a join say more than the texts do, and is left out."""
    return [*_by_indication(catalog), *_by_treatment(catalog)]


def families(catalog: Catalog) -> list[frozenset[EntityKey]]:
    """Sets of a few drugs that share a category: searches that find several of them need them in one split."""
    items = {item for drug in catalog.askable("drugs_info") for item in catalog.items(drug, "cate_name")}
    found = (catalog.rows_with("drugs_info", "cate_name", item) for item in sorted(items))
    return [frozenset(drug.key for drug in drugs) for drugs in found if 1 < len(drugs) <= MAX_DRUGS]


def _by_indication(catalog: Catalog) -> Iterator[DiseaseDrugs]:
    meant: dict[EntityKey, list[Entity]] = {}
    for drug in catalog.rows["drugs_info"]:
        for disease in _meant(catalog, "disease", drug.values.get("indication")):
            meant.setdefault(disease.key, []).append(drug)
    for disease in catalog.askable("disease"):
        drugs = meant.get(disease.key, [])
        if _usable(drugs) and drugs == catalog.rows_with("drugs_info", "indication", disease.name):
            yield DiseaseDrugs("disease_to_drugs", disease, tuple(drugs))


def _by_treatment(catalog: Catalog) -> Iterator[DiseaseDrugs]:
    for disease in catalog.askable("disease"):
        text = disease.values.get("treatment")
        drugs = sorted(_meant(catalog, "drugs_info", text), key=lambda drug: drug.row_id)
        found = {drug.row_id for drug, _ in catalog.names_in("drugs_info", text or "")}
        if _usable(drugs) and found == {drug.row_id for drug in drugs}:
            yield DiseaseDrugs("treatment_to_drugs", disease, tuple(drugs))


def _usable(drugs: list[Entity]) -> bool:
    return 0 < len(drugs) <= MAX_DRUGS and all(drug.askable for drug in drugs)


def _meant(catalog: Catalog, table: str, text: str | None) -> list[Entity]:
    """The rows of `table` named in `text` as whole words with their own capitals, the longest name at each place."""
    if not text:
        return []
    found = sorted(catalog.names_in(table, text), key=lambda hit: (hit[1], -len(hit[0].name)))
    meant: dict[EntityKey, Entity] = {}
    end = 0
    for entity, start in found:
        stop = start + len(entity.name)
        if start >= end:
            end = stop
            if text[start:stop] == entity.name and not _inside_word(text, start, stop):
                meant.setdefault(entity.key, entity)
    return list(meant.values())


def _inside_word(text: str, start: int, stop: int) -> bool:
    around = text[max(start - 1, 0) : start], text[stop : stop + 1]
    edges = text[start], text[stop - 1]
    return any(_latin(outer) and _latin(inner) for outer, inner in zip(around, edges, strict=True))


def _latin(char: str) -> bool:
    return char.isascii() and char.isalnum()
