"""Write questions to the parquet file that verl reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sql_agent.rollouts.scheduler import Mode
from sql_agent.schemas import Question


def write_dataset(questions: Sequence[Question], path: Path, mode: Mode) -> None:
    """Write `questions` to the parquet file `path`; each row holds its complete question as JSON."""
    rows = [
        {
            "data_source": "sql_agent",
            "prompt": [{"role": "user", "content": question.question}],
            "reward_model": {"style": "rule", "ground_truth": question.answer},
            "extra_info": {"index": index, "mode": mode, "question": question.model_dump_json()},
        }
        for index, question in enumerate(questions)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(path)
