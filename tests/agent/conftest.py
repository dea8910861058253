"""The workflow of several roles on a folder in Spider's form."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.config.settings import Settings, load_settings
from sql_agent.tasks.task import Task, load_task
from tests.support.orchard import write_spider_folder


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    data = write_spider_folder(tmp_path / "data")
    return load_settings(
        [f"spider.data_dir={data}", "spider.val_databases=1", f"local.cache_dir={tmp_path}", "agent.max_turns=3",
         "agent.workflow=check-rewrite", "task=spider"]
    )  # fmt: skip


@pytest.fixture
def task(settings: Settings) -> Task:
    return load_task(settings.task)
