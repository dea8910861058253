"""Define the settings in sections. `sql-agent settings` prints them, `load_settings` builds them."""

from __future__ import annotations

import re
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from sql_agent.config.paths import RUNS, VAR
from sql_agent.schemas import Lang, QueryLimits, Style

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(gt=0, le=1_000_000)]  # of what one process holds at once
Seconds = Annotated[float, Field(gt=0.0, le=1e6)]  # eleven days, which every clock and time-out can hold
PositiveNumber = Annotated[float, Field(gt=0.0)]
NotNegativeNumber = Annotated[float, Field(ge=0.0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]

_MAX_SEED = 2**31 - 1  # the largest signed 32-bit integer; NumPy takes twice as much, PyTorch and vLLM more


class Section(BaseModel):
    """Base of all settings: unknown keys, infinities and NaN are errors, and every type can be given as text."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _read_text(cls, value: Any, info: ValidationInfo) -> Any:
        """Parse texts that pydantic does not: `none` or an empty text as None, and `0,10` or `[0,10]` as a tuple."""
        if not isinstance(value, str) or info.field_name is None:
            return value
        annotation = cls.model_fields[info.field_name].annotation
        if NoneType in get_args(annotation) and value.strip().lower() in {"", "none"}:
            return None
        if get_origin(annotation) is tuple:
            items = value.strip("[] ")
            return items.split(",") if items else ()
        return value


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


class AgentSettings(Section):
    """How the agent runs, and how its model is sampled in training and in validation."""

    tool: Literal["builtin", "mcp"] = Field(
        "builtin", description="builtin: statements run in processes of our own; mcp: behind an MCP server of ours"
    )
    mcp_url: str | None = Field(
        None, description="address of the MCP server, such as http://127.0.0.1:8765/mcp; its token is MCP_TOKEN"
    )
    mcp_command: str | None = Field(
        None, description="command that starts an MCP server over stdio, in place of `agent.mcp_url`: sql-agent mcp"
    )
    workflow: Literal["react", "check-rewrite"] = Field(
        "react",
        description="react: the model calls the tool until it answers; check-rewrite: it writes a statement, checks "
        "the result and writes the statement again, each in a role with a prompt of its own",
    )
    train_roles: str = Field(
        "write|rewrite",
        description="regular expression; of a workflow with several roles only the calls of those that it matches as a "
        "whole are trained: write, check, rewrite, answer",
    )
    max_turns: Positive = Field(
        4,
        description="calls of the model in one rollout, the final answer included; in check-rewrite the statements "
        "that it writes",
    )
    max_tokens: Positive = Field(128, description="tokens that the model may write in one turn")
    temperature: NotNegativeNumber = Field(1.0, description="sampling temperature in training; 0 is greedy")
    val_temperature: NotNegativeNumber = Field(
        0.0, description="sampling temperature in validation, `sql-agent ask` and `evaluate`; 0 is greedy"
    )
    request_timeout_s: Seconds = Field(120.0, description="seconds that one call of the model may take")

    @field_validator("train_roles")
    @classmethod
    def _is_expression(cls, expression: str) -> str:
        try:
            re.compile(expression)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return expression


class JudgeSettings(Section):
    """Which judge grades the answers, within which limits, and how many failures a run accepts."""

    name: str = Field(
        "auto",
        description="facts, llm, llm:MODEL, reward-model or ranking, or several joined by + (a panel: their mean); "
        "auto is llm where TEACHER_MODEL is set, else facts",
    )
    rubric: Path | None = Field(
        None,
        description="TOML file with the rubric of the judge `llm`; none takes the shipped one. Questions that the "
        "database cannot answer keep theirs",
    )
    reward_model_range: tuple[float, float] = Field(
        (0.0, 1.0), description="lowest and highest score of the reward model, mapped to 0 and 1"
    )
    max_answer_chars: Positive = Field(2000, description="characters; a longer answer gets 0 from every judge")
    max_tokens: Positive = Field(
        800, description="tokens of one reply of the judge; doubled, twice at most, when a reply was cut off"
    )
    timeout_s: Seconds = Field(60.0, description="seconds that one request to the judge may take")
    concurrency: Positive = Field(32, description="requests to the judge at once, of all runners together")
    requests_per_minute: PositiveNumber | None = Field(
        None, description="requests to the judge in a minute, of all runners together; none is no limit"
    )
    tokens_per_minute: PositiveNumber | None = Field(
        None, description="tokens to and from the judge in a minute, of all runners together; none is no limit"
    )
    cache_dir: Path = Field(VAR / "judge-cache", description="folder of the verdicts of judges behind a network")
    max_failed_share: Share = Field(
        0.05,
        description="share of a step's rollouts whose grading may fail; more stops the run. One always may, with the "
        "judge `ranking` one group",
    )

    @field_validator("reward_model_range")
    @classmethod
    def _rises(cls, ends: tuple[float, float]) -> tuple[float, float]:
        if ends[0] >= ends[1]:
            raise ValueError("the lowest score must come first, and below the highest")
        return ends


class RunnerSettings(Section):
    """Runner processes, the store they talk to, and what happens to lost rollouts."""

    n_runners: Positive = Field(4, description="runner processes")
    concurrency: Positive = Field(
        32, description="rollouts at once in each runner process, and questions at once in `sql-agent evaluate`"
    )
    n_proxies: Positive = Field(1, description="LLM proxy processes; only the verl backend runs more than one")
    rollout_timeout_s: Seconds = Field(300.0, description="seconds after which a rollout is lost")
    rollout_retries: NotNegative = Field(3, description="runs of a lost rollout beyond the first; 0 runs it once")
    max_failed_share: Share = Field(
        0.2, description="share of a step's rollouts that may be lost, failed gradings included; more stops the run"
    )
    stall_s: Seconds = Field(
        60.0, description="seconds without a rollout that starts or ends until a message names those still running"
    )


class TrainSettings(Section):
    """GRPO (Shao et al. 2024, arXiv:2402.03300) with the asymmetric clip of DAPO (Yu et al. 2025, arXiv:2503.14476)."""

    steps: Positive = Field(20, description="GRPO steps")
    questions_per_step: Count = Field(4, description="questions in one step")
    group_size: Annotated[int, Field(ge=2, le=10_000)] = Field(
        4, description="rollouts of one question, compared with each other"
    )
    lr: PositiveNumber = Field(5e-6, description="learning rate of AdamW, constant")
    clip_low: Share = Field(0.2, description="the probability ratio is clipped below 1 − clip_low")
    clip_high: NotNegativeNumber = Field(0.3, description="the probability ratio is clipped above 1 + clip_high")
    kl_coef: NotNegativeNumber = Field(
        0.0, description="weight of the KL divergence from the starting model, in nats per token; 0 leaves it out"
    )
    minibatches: Positive = Field(1, description="optimizer steps per GRPO step, each on a part of the groups")
    micro_batch: Positive = Field(
        8, description="sequences per forward pass, also in sft; verl packs GRPO's by tokens instead"
    )
    max_grad_norm: PositiveNumber = Field(1.0, description="L2 norm to which a larger gradient is scaled down")
    save_every: Positive = Field(5, description="steps between two checkpoints")
    keep_checkpoints: Positive = Field(2, description="newest checkpoints that are kept")


class SftSettings(Section):
    """Supervised fine-tuning on the training questions' gold SQL, before GRPO; its result is cached on disk."""

    steps: NotNegative = Field(16, description="optimizer steps; 0 starts GRPO from the model as it is")
    batch: Count = Field(8, description="demonstrations in one step, each task type by its share in the file")
    lr: PositiveNumber = Field(2e-4, description="peak learning rate of AdamW; rises over a tenth, then falls linearly")


class LocalSettings(Section):
    """The backend `local`, which samples and trains on a CPU."""

    cache_dir: Path = Field(VAR / "cache", description="folder of converted and of fine-tuned models, also of verl's")
    cheap_update: bool = Field(
        False,
        description="GRPO trains the upper half of the layers on the best and the worst rollout of each group, and the "
        "learning rate rises over the first three steps; less than half of the time of a whole update",
    )
    max_context: Positive = Field(
        2048, description="tokens of prompt and reply together; a request for more ends its rollout"
    )


class VerlSettings(Section):
    """The backend `verl`, which samples and trains on GPUs."""

    n_gpus: Positive = Field(1, description="GPUs of each host, or NPUs with --device npu")
    nnodes: Positive = Field(1, description="hosts of the Ray cluster")
    lora_rank: NotNegative = Field(0, description="rank of the LoRA adapters that are trained; 0 trains all weights")
    trainer_mode: Literal["sync", "colocate_async", "separate_async"] = Field(
        "sync", description="verl's trainer; separate_async rolls out on half of the GPUs and needs two or more"
    )
    gpu_memory_gb: Literal["auto", "24", "40", "80"] = Field(
        "auto", description="GB of GPU memory to plan for; auto goes by the smallest GPU that nvidia-smi shows"
    )
    test_every: NotNegative = Field(0, description="steps between two validations; 0 validates before and after only")
    dynamic_sampling: NotNegative = Field(
        0,
        description="run up to so many times a step's rollouts until as many groups have rewards that differ as a step "
        "has questions (DAPO); 0 trains on those that there are",
    )
    host: str = Field("127.0.0.1", description="address of this host that other hosts reach; needed for nnodes > 1")
    config: dict[str, Any] = Field(
        default_factory=dict,
        description="verl's own configuration, key by key: verl.config.actor_rollout_ref.rollout.max_num_seqs=512; "
        "the group verl.config.sql_agent is ours (endpoints, level)",
    )

    @field_validator("dynamic_sampling")
    @classmethod
    def _leaves_room(cls, times: int) -> int:
        if times == 1:
            raise ValueError("the first group whose rewards are equal would end the run; give 2 or more, or 0")
        return times


class TrackingSettings(Section):
    """Services that are sent a run's metrics and rollouts. None of them can stop a run."""

    to: tuple[Literal["wandb", "swanlab", "tensorboard"], ...] = Field(
        (), description="trackers: wandb, swanlab, tensorboard; several with commas (extra `tracking`)"
    )
    project: str = Field("sql-agent", description="name of the project there")
    rollouts: NotNegative = Field(32, description="rollouts of each step and validation set that are sent as a table")


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
