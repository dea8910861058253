"""Define the settings of what is asked about: databases and questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from sql_agent.config.section import NotNegative, Positive, Seconds, Section
from sql_agent.schemas import Style


class DatabaseSettings(Section):
    """The run's databases, and the limits of one query."""

    path: Path | None = Field(
        None, description="SQLite file to query; none takes DATABASE_URL, else the sample of `lang`, made if missing"
    )
    deadline_s: Seconds = Field(2.0, description="seconds that one query may run")
    max_rows: Positive = Field(20, description="rows of one query's result that the model sees")
    max_chars: Annotated[int, Field(ge=200)] = Field(
        1500, description="characters of JSON of one query's result that the model sees, hint not counted"
    )
    keep_open: Positive = Field(
        32, description="databases that each process keeps open where questions name several; each takes some 10 MB"
    )


class DataSettings(Section):
    """The questions to train and to validate on."""

    train_file: Path | None = Field(
        None, description="training questions, parquet or JSONL; none takes those made for the database"
    )
    val_file: Path | None = Field(
        None, description="validation questions, parquet or JSONL; none takes those made for the database"
    )
    mapping: Path | None = Field(
        None,
        description="TOML file that names the columns of these two files; none reads those of docs/questions.md",
    )
    style: Style = Field(
        "mixed", description="wording of the questions made for the database: formal templates, as people ask, or mixed"
    )
    task_types: tuple[str, ...] = Field(
        (), description="types of the files' questions to train and to validate on, joined by commas; empty takes all"
    )
    val_questions: Positive = Field(24, description="template questions in one validation, evenly spaced over the file")
    natural_questions: NotNegative = Field(
        12,
        description="natural questions in one validation, out of the task's benchmark in `lang` and spread over its "
        "types; 0 asks none, as `--ci-fast` does on a CPU",
    )


class SpiderSettings(Section):
    """The task `spider`: questions about many SQLite databases, answered with a statement and graded by its result."""

    data_dir: Path | None = Field(
        None, description="folder with database/NAME/NAME.sqlite and the questions, JSON or parquet, as Spider has them"
    )
    val_databases: NotNegative = Field(
        15, description="databases whose questions are held out of training, to validate on; 0 holds out none"
    )
    val_seed: int = Field(0, description="seed of the choice of these databases, which does not go by `seed`")
    schema_chars: Positive = Field(
        6000, description="characters of a database's description in the prompt; values, then columns are left out"
    )
    schema_values: NotNegative = Field(2, description="values of each text column that the description shows")
    match: Literal["public", "strict"] = Field(
        "public",
        description="public: results are equal by the rules of the public evaluators; strict: an empty result proves "
        "nothing, so it never counts as right",
    )
    keep_distinct: bool = Field(
        False,
        description="compare with DISTINCT as it is written; the public evaluators remove it from both statements",
    )
    partial_credit: Annotated[float, Field(ge=0.0, le=0.5)] = Field(
        0.0, description="reward of a wrong result whose cells are all right, and of others as far as they are"
    )
    deadline_s: Seconds = Field(10.0, description="seconds that a statement may run when results are compared")
