"""Questions that lead from a disease to drugs, across both tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sql_agent.tasks.medical.questions.catalog import Catalog, Entity
from sql_agent.tasks.medical.questions.draft import Corpus, Draft, in_list, name_evidence, name_is, quoted
from sql_agent.tasks.medical.questions.related import DiseaseDrugs

# More items of a treatment than this are too many for one IN.
MAX_ITEMS_LOOKED_UP = 10
# The text of one table that holds the name of the other's row.
_JOINS = {"disease_to_drugs": ("d.indication", "s.disease_name"), "treatment_to_drugs": ("s.treatment", "d.med_name")}


def disease_to_drugs(source: Corpus) -> Iterator[Draft]:
    """Yield questions about which drugs of one table go with a disease of the other."""
    both = {pool: {relation.disease: relation for relation in source.relations if relation.pool == pool}
            for pool in _JOINS}  # fmt: skip
    for relation in source.relations:
        if len(source.separator.join(drug.name for drug in relation.drugs)) > source.max_answer:
            continue
        draft = _draft(source, relation)
        yield draft
        if source.banks and (sql := _either(source, relation, both)):
            yield replace(draft, pool="drugs_for_disease", sql=sql, other_sql=(), bucket="either")


def _draft(source: Corpus, relation: DiseaseDrugs) -> Draft:
    text, name = _JOINS[relation.pool]
    holds = f"{text} LIKE {source.catalog.dialect.joined(quoted('%'), name, quoted('%'))}"
    return Draft(
        task_type="disease_to_drugs",
        pool=relation.pool,
        column=None,
        slots={"name": relation.disease.name},
        sql=f"SELECT d.med_name FROM disease s JOIN drugs_info d ON {holds} "
        f"WHERE s.disease_name = {quoted(relation.disease.name)}",
        answer=source.separator.join(drug.name for drug in relation.drugs),
        evidence=name_evidence(relation.drugs),
        entities=relation.entities,
        bucket=f"{relation.pool}/{min(len(relation.drugs), 3)}",
        subject=relation.disease,
        other_sql=(_in_steps(source.catalog, relation),),
    )


def _in_steps(catalog: Catalog, relation: DiseaseDrugs) -> str:
    """Return the same without a join: the name stands in the indications, or the treatment is read and then the drugs.

    All items of the treatment are looked up, because the table says which of them are drugs.
    """
    disease = relation.disease
    if relation.pool == "disease_to_drugs":
        return f"SELECT med_name FROM drugs_info WHERE indication LIKE {quoted(f'%{disease.name}%')}"
    items = catalog.items(disease, "treatment")
    drugs = [drug.name for drug in relation.drugs]
    names = items if len(items) <= MAX_ITEMS_LOOKED_UP and set(drugs) <= set(items) else drugs
    return (
        f"SELECT treatment FROM disease WHERE {name_is(disease)}; "
        f"SELECT med_name FROM drugs_info WHERE med_name IN {in_list(names)}"
    )


def _either(source: Corpus, relation: DiseaseDrugs, both: Mapping[str, Mapping[Entity, DiseaseDrugs]]) -> str | None:
    """Return how the drugs "for" a disease are found: by its treatment, and by indications where that says nothing.

    None where the two sides name different drugs, because such a question would have two answers.
    """
    disease = relation.disease
    treated = both["treatment_to_drugs"].get(disease)
    indicated = both["disease_to_drugs"].get(disease)
    if treated and indicated and set(treated.drugs) == set(indicated.drugs):
        return _in_steps(source.catalog, relation)
    if indicated and not disease.values.get("treatment"):
        return f"SELECT treatment FROM disease WHERE {name_is(disease)}; {_in_steps(source.catalog, indicated)}"
    return None
