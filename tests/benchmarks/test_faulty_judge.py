"""A judge that fails one call in five, by every fault there is: nothing is lost, nothing invented, limits hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "judge_calls.py"


@pytest.mark.slow
def test_gradings_survive_a_judge_that_fails_one_call_in_five() -> None:
    command = [sys.executable, str(BENCHMARK), "--gradings", "200", "--concurrency", "16"]
    result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout)
    assert all(count > 0 for count in result["faults"].values()), "every fault came up"
    assert result["faulty_lost_wrong"] == [0, 0]
    assert result["requests_counted"] == result["requests"] > 200
    assert result["answered_and_sent_again"] == 0
    assert result["most_at_once"] <= 17, "a connection that was given up may linger for a moment"
    assert result["second_pass_requests"] == 0
    assert result["second_pass_lost_wrong"] == [0, 0]
