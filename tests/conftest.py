"""Order the tests, keep them apart from each other and from the checkout, and make a tiny model."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# With two tests on two cores, further threads wait for each other, busily.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

from sql_agent.schemas import Lang

# A shell starts what it runs in the background with Ctrl-C ignored, and every process started here would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

gc.disable()  # while all that the tests need is imported; sql_agent/system/imports.py says why


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest file first, then those with slow tests, so that no process has one of them left at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path.name != "test_bundled_model.py", item.path not in slow))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _keep_little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give each test folders of its own for what commands keep between runs, and runs without the benchmark."""
    monkeypatch.setenv("SQL_AGENT_DATA__NATURAL_QUESTIONS", "0")
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("SQL_AGENT_JUDGE__CACHE_DIR", str(tmp_path / "judge-cache"))


@pytest.fixture(autouse=True, scope="session")
def _take_few_resamples() -> Iterator[None]:
    """Bootstrap intervals with few resamples: with 1000 or more they are most of what the tests of judges cost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sql_agent.judge_eval.agreement.RESAMPLES", 50)
        patch.setattr("sql_agent.evaluation.statistics.RESAMPLES", 200)
        yield


@pytest.fixture(scope="session")
def tiny_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with a random two-layer Llama and a byte-level ChatML tokenizer."""
    from tests.support.tiny_model import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture(scope="session")
def sample_of(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Callable[[Lang], tuple[Path, Path]]:
    """Return the sample database of a language and the folder of its questions, which all processes share.

    Making them takes five seconds, so whoever asks first makes them; they are only to be read.
    """
    from tests.support.medical_questions import questions_folder

    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent

    def sample(lang: Lang) -> tuple[Path, Path]:
        folder = shared / f"sample-{lang}"
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                making = shared / f"making-sample-{lang}"
                making.mkdir()
                questions_folder(making, lang, "sample")
                making.rename(folder)
        return folder / "sample.db", folder / "sample"

    return sample
