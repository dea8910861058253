"""Which drugs go with a disease: by the drugs' indications, and by the disease's treatment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sql_agent.tasks.medical.questions.catalog import Catalog, Entity, EntityKey, holds_item

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
    """Return all relations with 1 to 8 drugs where each name that LIKE finds is a whole item of its text.

    A name inside a longer word or name ("hypertension" in "pulmonary hypertension", 夫定 in 拉米夫定) makes the join
    say more than the texts do: the whole relation is left out.
    """
    return [*_by_indication(catalog), *_by_treatment(catalog)]


def families(catalog: Catalog) -> list[frozenset[EntityKey]]:
    """Sets of a few drugs that share a category: searches that find several of them need them in one split."""
    items = {item for drug in catalog.askable("drugs_info") for item in catalog.items(drug, "cate_name")}
    found = (catalog.rows_with("drugs_info", "cate_name", item) for item in sorted(items))
    return [frozenset(drug.key for drug in drugs) for drugs in found if 1 < len(drugs) <= MAX_DRUGS]


def _by_indication(catalog: Catalog) -> Iterator[DiseaseDrugs]:
    for disease in catalog.askable("disease"):
        drugs = catalog.rows_with("drugs_info", "indication", disease.name)
        if _usable(drugs) and all(holds_item(drug.values["indication"] or "", disease.name) for drug in drugs):
            yield DiseaseDrugs("disease_to_drugs", disease, tuple(drugs))


def _by_treatment(catalog: Catalog) -> Iterator[DiseaseDrugs]:
    for disease in catalog.askable("disease"):
        text = disease.values.get("treatment") or ""
        found = {drug.row_id: drug for drug, _ in catalog.names_in("drugs_info", text)}
        drugs = [found[row_id] for row_id in sorted(found)]
        if _usable(drugs) and all(holds_item(text, drug.name) for drug in drugs):
            yield DiseaseDrugs("treatment_to_drugs", disease, tuple(drugs))


def _usable(drugs: list[Entity]) -> bool:
    return 0 < len(drugs) <= MAX_DRUGS and all(drug.askable for drug in drugs)
