"""Measure how well generated questions cover people's wordings: question_coverage.py DB TRAIN.parquet [MORE.parquet …]

A small model often asks the wrong column. For each file of training questions, a linear classifier over parts of the
text learns which columns the last gold statement of a question names. It is then asked about people's questions about
the same database (by default those of the benchmark `real`). Printed are the share of these whose likeliest column is
right, and the share whose columns are all among the three likeliest. Names of rows are masked, and questions without an
answer left out. Files are compared at the size of the smallest, with three seeds; a minute a file on a CPU.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path

import torch
from sqlglot import exp, parse_one

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sql_agent.questions.question_files import load_questions
from sql_agent.schemas import Question
from sql_agent.tasks.medical.tables import NAME_COLUMNS

_REAL = Path(__file__).resolve().parents[1] / "sql_agent/tasks/medical/natural/real_zh.jsonl"
_HASHES, _LONGEST, _PASSES, _BATCH, _RATE, _SEEDS = 1 << 18, 4, 4, 64, 0.3, 3
_Example = tuple[list[int], frozenset[str]]


def main() -> None:
    """Print a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("db", type=Path, metavar="DB")
    parser.add_argument("files", type=Path, nargs="+", metavar="TRAIN.parquet")
    parser.add_argument("--questions", type=Path, default=_REAL, help="people's questions with gold SQL")
    arguments = parser.parse_args()
    names = _names(arguments.db)
    asked = [each for each in _examples(load_questions(arguments.questions), names) if each[1]]
    made = {file: [each for each in _examples(load_questions(file), names) if each[1]] for file in arguments.files}
    size = min(map(len, made.values()))
    for file, examples in made.items():
        first, three = (
            sum(share) / _SEEDS
            for share in zip(*(_shares(examples, asked, size, seed) for seed in range(_SEEDS)), strict=True)
        )
        print(f"{file}: {size} questions, of {len(asked)} {first:.1%} likeliest column right, {three:.1%} all in three")


def _names(db: Path) -> frozenset[str]:
    with sqlite3.connect(db) as connection:
        rows = [
            row for table, name in NAME_COLUMNS.items() for row in connection.execute(f"SELECT {name} FROM {table}")
        ]
    return frozenset(name for (name,) in rows if name and len(name) > 1)


def _examples(questions: Sequence[Question], names: Collection[str]) -> list[_Example]:
    return [(_features(_masked(each.question, names)), _columns(each)) for each in questions]


def _masked(text: str, names: Collection[str]) -> str:
    """Return the text with each longest name of a row as "N"."""
    masked, place = "", 0
    while place < len(text):
        ends = range(min(len(text), place + 30), place + 1, -1)
        end = next((end for end in ends if text[place:end] in names), 0)
        masked, place = (masked + "N", end) if end else (masked + text[place], place + 1)
    return masked


def _features(text: str) -> list[int]:
    marked = f"^{text}$"
    parts = (marked[i : i + n] for n in range(1, _LONGEST + 1) for i in range(len(marked) - n + 1))
    return [zlib.crc32(part.encode()) % _HASHES for part in parts]


def _columns(question: Question) -> frozenset[str]:
    """Return the columns of the last gold statement but the names of rows, each with its table."""
    if question.task_type == "unanswerable" or not question.statements:
        return frozenset()
    tree = parse_one(question.statements[-1], dialect="sqlite")
    tables = sorted(table.name for table in tree.find_all(exp.Table))
    found = {column.name for column in tree.find_all(exp.Column)} - set(NAME_COLUMNS.values())
    return frozenset(f"{'+'.join(dict.fromkeys(tables))}.{name}" for name in found)


def _shares(examples: Sequence[_Example], asked: Sequence[_Example], size: int, seed: int) -> tuple[float, float]:
    chosen = random.Random(seed)
    drawn = chosen.sample(examples, size)
    labels = sorted({label for _, columns in drawn for label in columns})
    numbers = {label: number for number, label in enumerate(labels)}
    weights = torch.zeros(_HASHES, len(labels), requires_grad=True)  # its gradients are sparse
    bias = torch.zeros(len(labels), requires_grad=True)
    optimizer = torch.optim.Adagrad([weights, bias], lr=_RATE)
    for _ in range(_PASSES):
        chosen.shuffle(drawn)
        for start in range(0, size, _BATCH):
            batch = drawn[start : start + _BATCH]
            wanted = torch.zeros(len(batch), len(labels))
            for row, (_, columns) in enumerate(batch):
                for label in columns:
                    wanted[row, numbers[label]] = 1 / len(columns)
            loss = -(wanted * (_scores(batch, weights) + bias).log_softmax(1)).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        order = (_scores(asked, weights) + bias).argsort(dim=1, descending=True)[:, :3].tolist()
    likeliest = [[labels[number] for number in row] for row in order]
    right = [(top[0] in columns, columns <= set(top)) for top, (_, columns) in zip(likeliest, asked, strict=True)]
    return sum(first for first, _ in right) / len(asked), sum(three for _, three in right) / len(asked)


def _scores(examples: Sequence[_Example], weights: torch.Tensor) -> torch.Tensor:
    starts = torch.tensor([0, *(len(features) for features, _ in examples[:-1])]).cumsum(0)
    features = torch.tensor([each for features, _ in examples for each in features])
    shares = torch.cat([torch.full((len(features),), len(features) ** -0.5) for features, _ in examples])
    return torch.nn.functional.embedding_bag(
        features, weights, starts, mode="sum", sparse=True, per_sample_weights=shares
    )


if __name__ == "__main__":
    main()
