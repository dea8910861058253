"""The Task class (schema, prompts, questions, reward and metrics of a task), and the loader of a task by name."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol

from sql_agent.config.endpoints import DatabaseServerSettings, TokenSettings
from sql_agent.config.settings import Settings
from sql_agent.database import (
    Database,
    DatabasePool,
    RequiredSchema,
    Source,
    is_url,
    open_database,
    open_source,
    parse_source,
)
from sql_agent.database.mcp_client import McpDatabase, ToolServer
from sql_agent.errors import ConfigError, DataError
from sql_agent.questions.question_columns import ColumnMapping
from sql_agent.questions.question_files import load_questions
from sql_agent.reward import GroupJudge, Judge
from sql_agent.reward.factory import judge_from_settings
from sql_agent.reward.judges.items import Reader, Words
from sql_agent.reward.rule_reward import rule_reward
from sql_agent.schemas import Lang, QueryCall, Question, RolloutRecord

BUILT_IN = {
    "medical": "sql_agent.tasks.medical.medical_task:TASK",
    "spider": "sql_agent.tasks.spider.spider_task:TASK",
    "ehrsql": "sql_agent.tasks.ehrsql.ehrsql_task:TASK",
}
DESCRIBED = ".toml"  # a task's name with this ending is the path of a description
DISCLAIMER = "For research on retrieval: check an answer in the database before you use it."

Split = Literal["train", "val", "test"]
PromptFactory = Callable[[Lang, Database, Settings], str]


class JudgeFactory(Protocol):
    """Builds the judge of a run; with `alone` this process may use the whole rate limit of the judge's endpoint."""

    def __call__(self, settings: Settings, words: Mapping[Lang, Words], /, *, alone: bool = False) -> Judge: ...


def no_named_database(_settings: Settings, name: str) -> Path:
    """Raise DataError: the task has no database besides the run's own."""
    raise DataError(
        f"there is no database {name!r}", hint="leave the question's `database` empty to query the run's own database"
    )


@dataclass(frozen=True)
class Task:
    """Everything that is specific to one task.

    name               name in messages
    schema             tables that a database must have and queries may read, and the columns with the names of rows
    tool_description   one sentence that describes the tool to the model; "{dialect}" becomes SQLite or MySQL
    disclaimer         last line of a command's output and first line of a page
    describe           system prompt of a workflow's roles: a description of the database
    instructions       system prompt of the workflow react: the same description, and how to answer
    labels             everyday names of columns in a language, by table and column; demonstrations say them
    question_text      the question as the model reads it, perhaps with the values of the database that it names
    answer_is_sql      whether the answer to a question is a SQL statement, not the result of the statement
    checks_results     whether in the workflow check-rewrite the model checks results; else a result with rows is final
    default_database   database file to use when the settings name none
    default_questions  question file of a split to use when the settings name none
    named_database     database file for a name in `Question.database`; raises DataError for an unknown name
    read_questions     reads a question file, given a column mapping or None
    of_split           selects the questions of a split, if one file contains several splits
    natural_questions  benchmark of natural questions in a language, asked in every validation
    real_questions     benchmark of a real database in a language, asked in every validation over this database
    questions_hint     how to get the default question files; "{database}" becomes the path of the database
    prepare            makes missing default files; its second argument prints a message
    prepare_database   makes a missing default database only, for commands that read no question file
    words              refusal sentences, measure words and synonyms by language, for the judge "facts"
    make_judge         builds the judge of the settings
    rule               part of the reward (0.0–0.1) that rules compute from a rollout's queries
    metrics            the task's own metrics of rewarded rollouts, by name
    """

    name: str
    schema: RequiredSchema
    tool_description: str
    disclaimer: str
    describe: PromptFactory
    instructions: PromptFactory
    default_database: Callable[[Settings], Path]
    default_questions: Callable[[Settings, Split], Path]
    questions_hint: str
    prepare: Callable[[Settings, Callable[[str], None]], None]
    prepare_database: Callable[[Settings, Callable[[str], None]], None] = lambda _settings, _say: None
    named_database: Callable[[Settings, str], Path] = no_named_database
    labels: Callable[[Lang], Mapping[str, Mapping[str, str]]] = lambda _lang: {}
    question_text: Callable[[Question, Database], str] = lambda question, _database: question.question
    answer_is_sql: bool = False
    checks_results: bool = True
    read_questions: Callable[[Path, ColumnMapping | None], list[Question]] = load_questions
    of_split: Callable[[Settings, Split, Sequence[Question]], Sequence[Question]] = lambda _s, _split, asked: asked
    natural_questions: Callable[[Lang], Sequence[Question]] = lambda _lang: ()
    real_questions: Callable[[Lang], Sequence[Question]] = lambda _lang: ()
    words: Mapping[Lang, Words] = field(default_factory=lambda: {"en": Words(), "zh": Words()})
    make_judge: JudgeFactory = judge_from_settings
    rule: Callable[[Sequence[QueryCall]], float] = rule_reward
    metrics: Callable[[Sequence[RolloutRecord]], Mapping[str, float]] = lambda _records: {}

    def abstains(self, answer: str, lang: Lang) -> bool:
        """Return whether `answer` is a refusal of the task and nothing else."""
        return Reader(self.words[lang]).is_refusal(answer)

    def describe_tool(self, database: Database) -> str:
        return self.tool_description.replace("{dialect}", database.dialect.title)

    def database_source(self, settings: Settings) -> Source:
        """Return the run's own database: `database.path`, else DATABASE_URL, else the task's default."""
        return given_source(settings) or self.default_database(settings)

    def database_shown(self, settings: Settings) -> str:
        """Return the path of the run's own database, or the server's URL without the password."""
        return str(tool_server(settings) if settings.agent.tool == "mcp" else self.database_source(settings))

    def source_of(self, settings: Settings, name: str | None) -> Source:
        """Return the database `name`, or the run's own for None. Raises DataError for an unknown name."""
        return self.database_source(settings) if name is None else self.named_database(settings, name)

    def check_databases(self, settings: Settings, names: Iterable[str | None]) -> None:
        """Open and close each database once, without worker processes.

        Raises DataError for an unknown name, DatabaseFileError for a missing database, table or column.
        """
        for name in dict.fromkeys(names):
            if name is None and settings.agent.tool == "mcp":
                self.open_database(settings).close()
                continue
            open_source(self.source_of(settings, name), self.schema, settings.database.limits())

    def open_database(self, settings: Settings) -> Database:
        """Open the run's own database, through an MCP server if `agent.tool` is mcp. Raises DatabaseFileError."""
        if settings.agent.tool == "mcp":
            return McpDatabase(tool_server(settings))
        return open_database(self.database_source(settings), self.schema, settings.database.limits())

    def databases(self, settings: Settings, own: Source | None = None) -> DatabasePool:
        """Return a pool that opens databases by `Question.database` on first use. `own` replaces the run's database.

        The pool raises DataError for an unknown name, DatabaseFileError for a missing database, table or column.
        """

        def open_named(name: str | None) -> Database:
            if name is None and own is None:
                return self.open_database(settings)
            source = own if own and name is None else self.source_of(settings, name)
            return open_database(source, self.schema, settings.database.limits())

        return DatabasePool(open_named)

    def question_file(self, settings: Settings, split: Split) -> Path:
        """Return `data.train_file` or `data.val_file` if set, else the task's default file of `split`.

        Raises ConfigError when the file does not exist.
        """
        given = _question_setting(settings, split)
        if given is not None and not given.exists():
            raise ConfigError(f"data.{split}_file={given} does not exist", hint="check the path")
        path = given or self.default_questions(settings, split)
        if not path.exists():
            hint = self.questions_hint.replace("{database}", str(self.database_source(settings)))
            raise ConfigError(
                f"no {split} questions of the task {self.name} at {path}",
                hint=f"give {'--questions FILE' if split == 'test' else f'data.{split}_file=PATH'}, or {hint}",
            )
        return path

    def questions(self, settings: Settings, split: Split) -> list[Question]:
        """Return the questions of `split` whose type is in `data.task_types`, or all questions if that list is empty.

        `data.mapping` applies to a file named in the settings. A validation file named in the settings is used whole.
        From any other file `of_split` selects, so that held-out questions are never trained on. Raises ConfigError for
        a missing file, mapping or type, and DataError for an error in the file.
        """
        path = self.question_file(settings, split)
        is_users = path == _question_setting(settings, split)
        mapping = ColumnMapping.load(settings.data.mapping) if settings.data.mapping is not None and is_users else None
        questions = self.read_questions(path, mapping)
        if not is_users or split == "train":
            questions = list(self.of_split(settings, split, questions))
        return _of_types(settings.data.task_types, questions, path)

    def judge(self, settings: Settings, *, alone: bool = False) -> Judge:
        """Return the judge of `settings`. Raises ConfigError when a setting is missing or wrong."""
        return self.make_judge(settings, self.words, alone=alone)

    def group_judge(self, settings: Settings) -> GroupJudge | None:
        """Return the judge if it compares the rollouts of a group, or None if it grades each rollout separately."""
        judge = self.judge(settings)
        return judge if isinstance(judge, GroupJudge) else None


def _question_setting(settings: Settings, split: str) -> Path | None:
    return {"train": settings.data.train_file, "val": settings.data.val_file}.get(split)


def lacks_questions(settings: Settings, default_questions: Callable[[Settings, Split], Path]) -> bool:
    """Return whether training with `settings` needs a default question file that does not exist."""
    splits: tuple[Split, ...] = ("train", "val")
    needed = [split for split in splits if _question_setting(settings, split) is None]
    return not all(default_questions(settings, split).exists() for split in needed)


def _of_types(wanted: Sequence[str], questions: list[Question], path: Path) -> list[Question]:
    found = {q.task_type for q in questions if q.task_type}
    if missing := [task_type for task_type in wanted if task_type not in found]:
        raise ConfigError(
            f"data.task_types: {path} has no question of the type {', '.join(map(repr, missing))}",
            hint=f"the types in the file are {', '.join(sorted(found)) or 'not given'}",
        )
    return [q for q in questions if q.task_type in wanted] if wanted else questions


def load_task(name: str) -> Task:
    """Return the built-in task `name`, the task of a description NAME.toml, or the Task `package.module:NAME`.

    The module of a Task is imported, also from the working directory. Raises ConfigError when there is no such task.
    """
    if name.endswith(DESCRIBED):
        from sql_agent.tasks.described.described_task import described_task  # noqa: PLC0415  which imports this module

        return described_task(Path(name))
    module_name, _, attribute = BUILT_IN.get(name, name).partition(":")
    if not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(
            f"there is no task {name!r}",
            hint=f"use {', '.join(BUILT_IN)}, NAME.toml of `sql-agent init`, or package.module:NAME for your own",
        )
    if (here := str(Path.cwd())) not in sys.path:  # an installed command does not search the working directory
        sys.path.append(here)
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"the task {name!r} cannot be imported: {error}",
            hint="run in the folder that contains the package, set PYTHONPATH to this folder, or install the package",
        ) from error
    task = getattr(module, attribute, None)
    if not isinstance(task, Task):
        found = [f"{module_name}:{key}" for key, value in vars(module).items() if isinstance(value, Task)]
        raise ConfigError(
            f"{module_name} has no task {attribute}", hint=f"the module has {', '.join(found) or 'no Task'}"
        )
    return task


def disclaimer_of(name: str) -> str:
    """Return the disclaimer of the task `name`. The name comes from a run's files, so no module is imported for it."""
    module = name.partition(":")[0]
    return load_task(name).disclaimer if name in BUILT_IN or module in sys.modules else DISCLAIMER


def default_settings(task_name: str) -> list[Path]:
    """Return [path of the built-in task's defaults.toml], or [] if there is no such file."""
    path = Path(__file__).with_name(task_name) / "defaults.toml"
    return [path] if task_name in BUILT_IN and path.exists() else []


def database_digest(task: Task, settings: Settings) -> str | None:
    """Return the SHA-256 of the run's own database; None if the database is not one file."""
    if settings.agent.tool == "mcp" or settings.spider.data_dir is not None:
        return None
    source = task.database_source(settings)
    if not isinstance(source, Path):
        return None
    with source.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def given_source(settings: Settings) -> Source | None:
    """Return the database of `database.path`, else of DATABASE_URL, else None. Raises ConfigError for a wrong URL."""
    if (path := given_file(settings)) is not None:
        return path
    url = DatabaseServerSettings().url
    return parse_source(url.get_secret_value()) if url is not None and url.get_secret_value() else None


def given_file(settings: Settings) -> Path | None:
    """Return `database.path`. Raises ConfigError for a URL: a run saves its settings, with the URL's password."""
    path = settings.database.path
    if path is not None and is_url(str(path)):
        raise ConfigError("database.path is a URL", hint="give the path of a SQLite file, or the URL as DATABASE_URL")
    return path


def tool_server(settings: Settings) -> ToolServer:
    """Return the MCP server of `agent.mcp_url` or `agent.mcp_command`. Raises ConfigError unless exactly one is set."""
    token = TokenSettings().mcp
    agent = settings.agent
    if bool(agent.mcp_url) == bool(agent.mcp_command):
        raise ConfigError(
            "agent.tool=mcp needs exactly one of agent.mcp_url and agent.mcp_command",
            hint="agent.mcp_url=http://127.0.0.1:8765/mcp, or agent.mcp_command='sql-agent mcp'",
        )
    return ToolServer(agent.mcp_url, agent.mcp_command, token.get_secret_value() if token is not None else None)
