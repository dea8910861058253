"""An answer's texts are found in the rows that hold them, and only there."""

from __future__ import annotations

import pytest

from sql_agent.chat.citations import find_citations
from sql_agent.schemas import Cell, QueryAnswer, QueryCall


def call(columns: tuple[str, ...], *records: tuple[Cell, ...]) -> QueryCall:
    answer = QueryAnswer(status="ok", columns=columns, records=records, count=len(records))
    return QueryCall(sql="SELECT …", answer=answer, seconds=0.0)


NAMES = call(("med_name", "form"), ("Drug 4", "Tablet"), ("Drug 5", "syrup"), ("Drug 6", None))
TREATMENT = call(("treatment",), ("Levothyroxine; regular TSH monitoring；随访",))


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("tablet; syrup", [("tablet", 1, 1, "form"), ("syrup", 1, 2, "form")]),
        ("It is a Tablet.", [("tablet", 1, 1, "form")]),
        ("regular TSH monitoring", [("regular tsh monitoring", 2, 1, "treatment")]),
        ("Drug 4: tablet", [("tablet", 1, 1, "form")]),
        ("随访", [("随访", 2, 1, "treatment")]),
        ("tabletop", []),
        ("capsule", []),
        ("", []),
    ],
)
def test_a_text_that_a_cell_holds_is_a_source_unless_the_question_says_it(
    answer: str, found: list[tuple[str, int, int, str]]
) -> None:
    sources = find_citations(answer, "Which form has Drug 4?", [NAMES, TREATMENT])
    assert [(s.text.casefold(), s.query, s.row, s.column) for s in sources] == found


def test_a_number_is_found_as_a_whole_only() -> None:
    count = call(("count(*)",), (3,))
    assert [source.text for source in find_citations("3", "How many?", [count])] == ["3"]
    assert find_citations("13", "How many?", [count]) == ()


def test_of_several_cells_the_query_that_holds_most_is_named() -> None:
    sources = find_citations(
        "Tablet; OTC", "?", [call(("form",), ("Tablet",)), call(("form", "status"), ("Tablet", "OTC"))]
    )
    assert [(source.text, source.query) for source in sources] == [("Tablet", 2), ("OTC", 2)]
