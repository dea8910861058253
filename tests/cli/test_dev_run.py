"""`train --dev` sends questions through runner, store and proxy to any endpoint, and shows every span."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.judge_server import serving
from tests.support.orchard import write_spider_folder
from tests.support.processes import finish, lines, start


@pytest.mark.slow
def test_an_endpoint_is_asked_without_training_and_each_call_has_a_span_with_its_role(tmp_path: Path) -> None:
    data = write_spider_folder(tmp_path / "data")
    with serving() as model:
        model.default = "```sql\nSELECT count(*) FROM tree\n```"
        process = start(
            ["--dev", "--task=spider", f"--data-dir={data}", "--workflow=check-rewrite", "spider.val_databases=1",
             f"runs_dir={tmp_path / 'runs'}", f"local.cache_dir={tmp_path}", "--n-runners=1"],
            OPENAI_API_BASE=f"{model.url}/v1", OPENAI_MODEL="some-model", OPENAI_API_KEY="secret-key",
        )  # fmt: skip
        output = finish(process)
    assert process.returncode == 0, output
    assert {request["model"] for request in model.requests} == {"some-model"}
    assert not any("return_token_ids" in request for request in model.requests), "which OpenAI's own API refuses"
    assert "Question 6 of 6" in output and "6 of 6 rollouts ended" in output
    assert output.count("sql_agent.role: write") == 6 and output.count("sql_agent.role: check") == 6
    assert "secret-key" not in output and "Traceback" not in output
    (run,) = (tmp_path / "runs").iterdir()
    assert lines(run / "metrics.jsonl") == [] and "Step" not in output
