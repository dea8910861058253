"""Make the database of the real English benchmark: real_english.py MEDQUAD EMA.xlsx LABELS.json --db OUT.db

    MEDQUAD      checkout of github.com/abachaa/MedQuAD: texts of the US National Institutes of Health (CC BY 4.0)
    EMA.xlsx     the European Medicines Agency's table of medicines (ema.europa.eu, "Download medicine data"; may be
                 reproduced if the source is named); the benchmark was written over the table of 2025-01-27
    LABELS.json  a JSON object: a drug's name, and the adverse reactions of its label (openFDA, CC0)

Two tables are written: `drugs_info`, a row for each medicine for humans, and `disease`, a row for each subject of
MedQuAD. What is changed: blanks are merged, the answers of several sources to one question follow each other, GARD's
lists of symptoms are divided into items, up to four other names of a disease begin its overview, and the description of
a medicine is made of six fields of the EMA's table, with ISO dates.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

# The column of an answer, by MedQuAD's type of the question.
COLUMNS = {
    "information": "overview",
    "symptoms": "clinical_manif",
    "complications": "complication",
    "frequency": "epidemiology",
    "susceptibility": "epidemiology",
    "exams and tests": "examination",
    "treatment": "treatment",
    "causes": "cause",
    "genetic changes": "cause",
    "inheritance": "cause",
    "prevention": "prevention",
    "outlook": "prognosis",
}
# Folders of MedQuAD from which the answers were removed for copyright.
_LEFT_OUT = ("10_", "11_", "12_")
_BEFORE_LIST = re.compile(
    r"^.*?The Human Phenotype Ontology provides.*?Signs and Symptoms Approximate number of patients "
    r"\(when available\) ",
    re.DOTALL,
)
_AFTER_LIST = re.compile(r"The Human Phenotype Ontology \(HPO\) has collected.*", re.DOTALL)
_ITEM = re.compile(r"(?<=[%-]) (?=\S)|(?<=/\d) (?=\D)|(?<=/\d\d) (?=\D)")
_FLAGS = {
    "Generic or hybrid": "generic or hybrid medicine",
    "Biosimilar": "biosimilar",
    "Orphan medicine": "orphan medicine",
    "Advanced therapy": "advanced therapy",
    "Conditional approval": "conditional approval",
    "Additional monitoring": "under additional monitoring",
}


def main() -> None:
    """Read the three sources and write the database."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("medquad", type=Path)
    parser.add_argument("medicines", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--db", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.db.exists():
        sys.exit(f"{arguments.db} exists; choose another name")
    tables = {
        "drugs_info": list(_drugs(arguments.medicines, json.loads(arguments.labels.read_text("utf-8")))),
        "disease": list(_diseases(arguments.medquad)),
    }
    with sqlite3.connect(arguments.db) as database:
        for table, rows in tables.items():
            names = list(dict.fromkeys(column for row in rows for column in row))
            database.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {', '.join(f'{n} TEXT' for n in names)})")
            marks = ", ".join("?" * (len(names) + 1))
            database.executemany(
                f"INSERT INTO {table} VALUES ({marks})",
                [(number, *(row.get(name) or None for name in names)) for number, row in enumerate(rows, 1)],
            )
            print(f"{table}: {len(rows)} rows, columns {', '.join(names)}")


def _drugs(path: Path, labels: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the row of each medicine for humans, from the EMA's table at `path` and the `labels` of drugs by name."""
    reactions = {name.casefold(): text for name, text in labels.items()}
    rows = pd.read_excel(path, header=None, dtype=str).fillna("").to_numpy().tolist()
    first = next(number for number, row in enumerate(rows) if row[0] == "Category")
    titles = [re.sub(r"\s+", " ", str(title)) for title in rows[first]]
    for values in rows[first + 1 :]:
        row = {title: str(value).strip() for title, value in zip(titles, values, strict=True)}
        if row["Category"] != "Human":
            continue
        name, common = row["Name of medicine"], row["International non-proprietary name (INN) / common name"]
        facts = {
            "Common name": common,
            "Therapeutic area": row["Therapeutic area (MeSH)"].replace(";", "; "),
            "ATC code": row["ATC code (human)"],
            "Marketing authorisation": _iso(row["Marketing authorisation date"]),
            "Note": "; ".join(words for title, words in _FLAGS.items() if row[title] == "Yes"),
        }
        yield {
            "med_name": name,
            "component": row["Active substance"].replace(";", "; "),
            "cate_name": row["Pharmacotherapeutic group (human)"].replace(";", "; ").rstrip(", "),
            "indication": row["Therapeutic indication"],
            "adverse_reactions": reactions.get(name.casefold()) or reactions.get(common.casefold(), ""),
            "company_name": row["Marketing authorisation developer / applicant / holder"],
            "med_approval": row["Medicine status"],
            "approve_code": row["EMA product number"],
            "description": ". ".join(f"{title}: {text}" for title, text in facts.items() if text),
        }


def _iso(date: str) -> str:
    """Return DD/MM/YYYY as YYYY-MM-DD."""
    return "-".join(reversed(date.split("/")))


def _diseases(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the row of each subject of MedQuAD, whose columns have the answers of all of MedQuAD's sources."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    written: dict[str, str] = {}
    for path in sorted(folder.glob("*_QA*/*.xml")):
        if path.parent.name.startswith(_LEFT_OUT):
            continue
        document = ElementTree.parse(path).getroot()
        name = (document.findtext("Focus") or "").strip()
        cells = found[written.setdefault(name.casefold(), name)]
        # A name with a comma, such as "Deafness, X-linked", would be read as two names in the list.
        others = [each.text.strip() for each in document.iter("Synonym") if each.text and "," not in each.text]
        if others:
            cells["overview"].append(f"Also called {', '.join(others[:4])}.")
        for pair in document.iter("QAPair"):
            question, answer = pair.find("Question"), " ".join((pair.findtext("Answer") or "").split())
            column = COLUMNS.get(question.get("qtype", "") if question is not None else "")
            if column and answer and (text := _listed(answer)) not in cells[column]:
                cells[column].append(text)
    order = dict.fromkeys(COLUMNS.values())
    for name, cells in sorted(found.items()):
        if name and any(column in cells for column in order):
            yield {"disease_name": name, **{column: "\n".join(cells.get(column, ())) for column in order}}


def _listed(answer: str) -> str:
    """Return GARD's list of symptoms without its explanations, an item after the other; any other answer as it is."""
    if not _BEFORE_LIST.match(answer):
        return answer
    items = _ITEM.split(_AFTER_LIST.sub("", _BEFORE_LIST.sub("", answer)).strip())
    return "; ".join(item.removesuffix(" -").strip() for item in items)


if __name__ == "__main__":
    main()
