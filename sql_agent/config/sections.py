"""Put the sections of the settings together. `sql-agent settings` prints them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from sql_agent.config.paths import RUNS
from sql_agent.config.questions import DatabaseSettings, DataSettings, SpiderSettings
from sql_agent.config.rollouts import AgentSettings, JudgeSettings, RunnerSettings
from sql_agent.config.section import Section
from sql_agent.config.training import LocalSettings, SftSettings, TrackingSettings, TrainSettings, VerlSettings
from sql_agent.schemas import Lang, QueryLimits

_MAX_SEED = 2**31 - 1  # what 32 bits with a sign hold; NumPy takes twice as much, PyTorch and vLLM more


class Settings(Section):
    """The task, the model, the backend and the folder of the results. `load_settings` builds this."""

    lang: Lang = Field(
        "en", description="language of the sample that is used when no database is named, and of natural questions"
    )
    task: str = Field(
        "medical", description="what is asked about: medical, spider, or package.module:NAME of your own Task"
    )
    model: str = Field("", description="Hugging Face folder or id; empty takes the embedded SmolLM2-135M-Instruct")
    backend: Literal["auto", "local", "verl"] = Field(
        "auto", description="where to train; auto takes verl where it is installed and a GPU is there, else local"
    )
    run_name: str = Field("", description="folder of the run under `runs_dir`; empty makes a name from date and time")
    runs_dir: Path = Field(RUNS, description="folder of all runs")
    seed: Annotated[int, Field(ge=0, le=_MAX_SEED)] = Field(
        0,
        description="seed of the order of the questions, of sampling and of fine-tuning, within what PyTorch, NumPy "
        "and vLLM all take",
    )
    database: DatabaseSettings = DatabaseSettings()
    data: DataSettings = DataSettings()
    agent: AgentSettings = AgentSettings()
    judge: JudgeSettings = JudgeSettings()
    runner: RunnerSettings = RunnerSettings()
    train: TrainSettings = TrainSettings()
    sft: SftSettings = SftSettings()
    local: LocalSettings = LocalSettings()
    verl: VerlSettings = VerlSettings()
    spider: SpiderSettings = SpiderSettings()
    tracking: TrackingSettings = TrackingSettings()

    @field_validator("run_name")
    @classmethod
    def _is_one_folder(cls, name: str) -> str:
        if name and (name == ".." or name != Path(name).name or name != name.strip() or not name.isprintable()):
            raise ValueError("not the plain name of one folder, such as night-1; where it is made is set by runs_dir")
        return name

    def database_limits(self) -> QueryLimits:
        """Return the limits of one query, as the database takes them."""
        return QueryLimits(
            deadline_s=self.database.deadline_s, max_rows=self.database.max_rows, max_chars=self.database.max_chars
        )
