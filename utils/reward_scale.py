"""Print a histogram of rewards: python utils/reward_scale.py runs/NAME

FILE is a run's folder, its rollouts.jsonl (rollouts of training count), or a JSONL file with a `score` a line, such as
the gradings.jsonl of `sql-agent judge evaluate`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sql_agent.cli.command import exits_cleanly, leave
from sql_agent.errors import DataError

BINS = 12  # one for each tenth from 0.0 to 1.1
WIDTH = 50  # characters of the longest bar


def main(argv: Sequence[str] | None = None) -> int:
    """Print how many rewards each tenth has, their mean, and how many lines have none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE")
    path = parser.parse_args(argv).file
    path = path / "rollouts.jsonl" if path.is_dir() else path
    try:
        rewards = [_reward(json.loads(line)) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        found = [float(reward) for reward in rewards if reward is not None]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"cannot read rewards from {path}: {error}", hint="give a run's folder or a JSONL file"
        ) from None
    if not found:
        raise DataError(f"{path} has no reward")
    counts = [0] * BINS
    for reward in found:
        counts[min(int(reward * 10 + 1e-9), BINS - 1)] += 1
    for number, count in enumerate(counts):
        print(f"{number / 10:.1f} {count:7} {'█' * round(WIDTH * count / max(counts))}")
    print(f"{len(found)} rewards, mean {sum(found) / len(found):.3f}; {len(rewards) - len(found)} lines without one")
    return 0


def _reward(line: dict[str, Any]) -> float | None:
    if "rollout_id" not in line:
        return line.get("score")
    reward = (line.get("record") or {}).get("reward")
    return reward["rule"] + reward["judge"] if reward and line["mode"] == "train" and not line["dropped"] else None


if __name__ == "__main__":
    leave(exits_cleanly(main))
