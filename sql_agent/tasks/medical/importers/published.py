"""Read the published data sets for which there is a built-in mapping: CMeKG and openFDA's drug labels."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Literal

from sql_agent.database import Source
from sql_agent.errors import DataError
from sql_agent.tasks.sources import FORMATS, Records, Rejected, Say, SourceRecord, json_record, read_records, reading

Published = Literal["cmekg", "openfda"]
_CMEKG = "cmekg.pkl"
_FORMATS = f"a .pkl or .tar.gz of PyCMeKG, openFDA's .json or .json.zip, {FORMATS}"


def published(source: Source) -> Published | None:
    """Return the name of the built-in mapping for this kind of source."""
    name = source.name.lower() if isinstance(source, Path) else ""
    if name.endswith((".pkl", ".tar.gz")):
        return "cmekg"
    return "openfda" if name.endswith((".json", ".json.zip")) else None


def medical_records(source: Source, tables: list[str], say: Say) -> Records:
    """Yield the records of a published data set or of any other source, as `read_records` does."""
    name = published(source)
    if name is None or not isinstance(source, Path):
        yield from read_records(source, tables, say, _FORMATS)
        return
    with reading(source, _FORMATS):
        yield from _cmekg(source) if name == "cmekg" else _openfda(source)


class _DataUnpickler(pickle.Unpickler):
    """Loads numbers, texts, lists and dicts; refuses a pickle that names a function or class."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise DataError(
            f"the pickle names {module_name}.{global_name}; plain data names no code, so nothing was run",
            hint="take the file from the package PyCMeKG itself",
        )


def _cmekg(path: Path) -> Records:
    """Yield the subjects of PyCMeKG's graph, from its pickle or from the package's source archive."""
    content = path.read_bytes() if path.suffix == ".pkl" else _graph_in_archive(path)
    graph = _DataUnpickler(io.BytesIO(content)).load()
    if not isinstance(graph, dict):
        raise DataError(f"{path} contains a {type(graph).__name__}, not a dict", hint="take the file from PyCMeKG")
    for subject, predicates in graph.items():
        if isinstance(predicates, dict):
            yield SourceRecord(str(subject), {"name": subject, **predicates})
        else:
            yield Rejected(str(subject), "its value is not a dict of predicates")


def _graph_in_archive(path: Path) -> bytes:
    with tarfile.open(path) as archive:
        member = next((m for m in archive.getmembers() if m.name.endswith(f"/{_CMEKG}")), None)
        content = archive.extractfile(member) if member else None
        if content is None:
            raise DataError(f"{path} contains no {_CMEKG}", hint="take the source archive of PyCMeKG")
        return content.read()


def _openfda(path: Path) -> Records:
    """Yield the labels in one of openFDA's JSON files."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            content = json.loads(archive.read(archive.namelist()[0]))
    else:
        content = json.loads(path.read_bytes())
    labels = content.get("results") if isinstance(content, dict) else None
    if not isinstance(labels, list):
        raise DataError(f'{path} has no list "results"', hint="give a file of openFDA's drug labels, or JSONL")
    for number, label in enumerate(labels, start=1):
        yield json_record(f"result {number}", label)
