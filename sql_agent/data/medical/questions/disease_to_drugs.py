"""Questions that lead from a disease to drugs, across both tables."""

from __future__ import annotations

from collections.abc import Iterator

from sql_agent.data.medical.questions.draft import Draft, Source, in_list, name_evidence, name_is, quoted
from sql_agent.data.medical.questions.related import DiseaseDrugs

_JOINS = {
    "disease_to_drugs": "d.indication LIKE '%' || s.disease_name || '%'",
    "treatment_to_drugs": "s.treatment LIKE '%' || d.med_name || '%'",
}


def disease_to_drugs(source: Source) -> Iterator[Draft]:
    """Which drugs of one table go with a disease of the other."""
    for relation in source.relations:
        answer = source.separator.join(drug.name for drug in relation.drugs)
        if len(answer) > source.max_answer:
            continue
        yield Draft(
            task_type="disease_to_drugs",
            pool=relation.pool,
            column=None,
            slots={"name": relation.disease.name},
            sql=f"SELECT d.med_name FROM disease s JOIN drugs_info d ON {_JOINS[relation.pool]} "
            f"WHERE s.disease_name = {quoted(relation.disease.name)}",
            answer=answer,
            evidence=name_evidence(relation.drugs),
            entities=relation.entities,
            bucket=f"{relation.pool}, {min(len(relation.drugs), 3)}",
            subject=relation.disease,
            other_sql=(_in_steps(relation),),
        )


def _in_steps(relation: DiseaseDrugs) -> str:
    """The same without a join: the name stands in the indications, or the treatment is read and then the drugs."""
    if relation.pool == "disease_to_drugs":
        return f"SELECT med_name FROM drugs_info WHERE indication LIKE {quoted(f'%{relation.disease.name}%')}"
    names = in_list(drug.name for drug in relation.drugs)
    return (
        f"SELECT treatment FROM disease WHERE {name_is(relation.disease)}; "
        f"SELECT med_name FROM drugs_info WHERE med_name IN {names}"
    )
