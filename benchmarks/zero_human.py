"""Make a folder in Spider's form with questions that no human wrote, to train on: zero_human.py SPIDER OUT

For each of five databases, `sql-agent init` describes it and `sql-agent data questions` makes questions. A question is
left out if its statement does not answer it alone (yes or no, two rows compared, any three of many, unanswerable), or
if a human asked it, word for word. OUT gets them as train_spider.json, and the human questions about the same databases
as dev.json. Then:

    sql-agent evaluate --task spider --data-dir OUT --workflow check-rewrite MODEL \\
        agent.max_turns=3 agent.max_tokens=256 database.max_rows=10 database.max_chars=1000 \\
        spider.val_databases=0 data.val_file=OUT/dev.json
    sql-agent train --task spider --data-dir OUT --backend verl --model MODEL \\
        spider.val_databases=0 data.val_file=OUT/dev.json sft.steps=0 train.steps=36
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sql_agent.questions.question_files import load_questions

_OTHER_ANSWER = {"yes_no", "comparison", "any_of", "unanswerable"}
# Databases that pages, tests or code of this project name, so that the generator may have been made for them.
_KNOWN = {"chinook_1", "hr_1", "wine_1"}


def main() -> None:
    """Write OUT and print how many questions it has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spider", type=Path, metavar="SPIDER", help="folder with database/ and train_spider.json")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--databases", nargs="+", help="default: five of those with at least 60 human questions")
    parser.add_argument("--seed", type=int, default=2026, help="seed of that choice (default: 2026)")
    arguments = parser.parse_args()
    human = json.loads((arguments.spider / "train_spider.json").read_text(encoding="utf-8"))
    counts = Counter(row["db_id"] for row in human)
    large = sorted(name for name in counts if counts[name] >= 60 and name not in _KNOWN)
    names = arguments.databases or random.Random(arguments.seed).sample(large, 5)
    arguments.out.mkdir(parents=True)
    (arguments.out / "database").symlink_to((arguments.spider / "database").resolve())
    made = []
    for name in names:
        rows = _generated(arguments.spider, arguments.out, name)
        print(f"{name}: {len(rows)} generated, {counts[name]} human questions")
        made += rows
    asked = [row for row in human if row["db_id"] in names]
    known = {row["question"] for row in asked}
    made = [row for row in made if row["question"] not in known]
    for file, rows in (("train_spider.json", made), ("dev.json", asked)):
        (arguments.out / file).write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")


def _generated(spider: Path, out: Path, name: str) -> list[dict[str, str]]:
    database, description, folder = spider / "database" / name / f"{name}.sqlite", out / f"{name}.toml", out / name
    command = [sys.executable, "-m", "sql_agent"]
    for arguments in (
        ["init", str(database), "--out", str(description), "--lang", "en"],
        ["data", "questions", "--task", str(description), "--out", str(folder)],
    ):
        subprocess.run([*command, *arguments], check=True, stdout=subprocess.DEVNULL)
    questions = [q for split in ("train", "val", "test") for q in load_questions(folder / f"{split}.parquet")]
    return [
        {"db_id": name, "question": q.question, "query": q.sql}
        for q in questions
        if q.task_type not in _OTHER_ANSWER and q.sql and ";" not in q.sql
    ]


if __name__ == "__main__":
    main()
