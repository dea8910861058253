"""Define the folders of caches and runs, and the settings in sections. `sql-agent settings` prints the settings."""

from __future__ import annotations

import re
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from sql_agent.errors import ConfigError
from sql_agent.schemas import Lang, QueryLimits, Style

CHECKOUT = Path(__file__).resolve().parents[2]


def _project() -> Path:
    """Return the folder of the git checkout, or "." if that is the working directory or there is no checkout."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the current folder was removed", hint="cd to a folder that exists") from None
    if not (CHECKOUT / "pyproject.toml").exists() or here == CHECKOUT:
        return Path()
    return CHECKOUT


PROJECT = _project()
VAR = PROJECT / "var"
RUNS = PROJECT / "runs"
ENV_FILES = (PROJECT / ".env", Path(".env"))

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(gt=0, le=1_000_000)]  # of questions or demonstrations, all in memory at once
Seconds = Annotated[float, Field(gt=0.0, le=1e6)]  # at most 11.6 days, which every time-out function accepts
PositiveNumber = Annotated[float, Field(gt=0.0)]
NotNegativeNumber = Annotated[float, Field(ge=0.0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]

_MAX_SEED = 2**31 - 1  # the largest signed 32-bit integer, a seed that NumPy, PyTorch and vLLM all accept


class Section(BaseModel):
    """Base of all sections: refuses unknown keys, infinities and NaN, and parses values that are given as text."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _read_text(cls, value: Any, info: ValidationInfo) -> Any:
        """Parse texts that pydantic refuses: `none` and "" as None, `0,10` and `[0,10]` as a tuple."""
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
        None,
        description="SQLite file to query; none: DATABASE_URL if set, else the sample of `lang`, which is made if "
        "missing",
    )
    deadline_s: Seconds = Field(2.0, description="seconds that one query may run")
    max_rows: Positive = Field(20, description="rows of a query's result that the model sees")
    max_chars: Annotated[int, Field(ge=200)] = Field(
        1500, description="characters of the JSON of a query's result that the model sees, without the hint"
    )


class DataSettings(Section):
    """The training and validation questions."""

    train_file: Path | None = Field(
        None, description="training questions, parquet or JSONL; none: those generated for the database"
    )
    val_file: Path | None = Field(
        None, description="validation questions, parquet or JSONL; none: those generated for the database"
    )
    mapping: Path | None = Field(
        None,
        description="TOML file that names the columns of these two files; none: the columns of docs/questions.md",
    )
    style: Style = Field(
        "mixed", description="wording of the generated questions: plain templates, or mixed with how people ask"
    )
    task_types: tuple[str, ...] = Field(
        (), description="question types to train and validate on, separated by commas; empty: all"
    )
    val_questions: Positive = Field(24, description="template questions per validation, evenly spaced over the file")
    natural_questions: NotNegative = Field(
        12,
        description="natural questions per validation, from the task's benchmark in `lang`, spread over its types; 0:"
        " none, as with `--ci-fast` on a CPU",
    )


class SpiderSettings(Section):
    """The tasks `spider` and `ehrsql`: questions about SQLite databases, answered with SQL, graded by its result."""

    data_dir: Path | None = Field(
        None, description="folder with database/NAME/NAME.sqlite and the questions, JSON or parquet, in Spider's layout"
    )
    val_databases: NotNegative = Field(15, description="databases held out of training for validation; 0: none")
    schema_chars: Positive = Field(
        6000, description="characters of the schema in the prompt; longer: sample values, then columns are left out"
    )
    schema_values: NotNegative = Field(2, description="sample values of each text column in the prompt")
    partial_credit: Annotated[float, Field(ge=0.0, le=0.5)] = Field(
        0.0,
        description="reward of a wrong result with exactly the gold cells; other results get this times their cell F1",
    )
    penalty: Share = Field(
        0.0,
        description="taken from the reward of a wrong answer, so that abstaining, which earns 0, is better than to "
        "guess",
    )
    deadline_s: Seconds = Field(10.0, description="seconds that a statement may run in the comparison")


class AgentSettings(Section):
    """The agent, and how its model is sampled in training and in validation."""

    tool: Literal["builtin", "mcp"] = Field(
        "builtin",
        description="builtin: statements run in local worker processes; mcp: on an MCP server (`sql-agent mcp`)",
    )
    mcp_url: str | None = Field(
        None, description="URL of the MCP server, such as http://127.0.0.1:8765/mcp; its token is MCP_TOKEN"
    )
    mcp_command: str | None = Field(
        None, description="command that starts an MCP server over stdio, instead of `agent.mcp_url`: sql-agent mcp"
    )
    workflow: Literal["react", "check-rewrite"] = Field(
        "react",
        description="react: the model calls the tool until it answers; check-rewrite: it writes a statement, checks "
        "the result and rewrites the statement, each in its own role and prompt",
    )
    train_roles: str = Field(
        "write|rewrite",
        description="regular expression; in a workflow with several roles, the roles that are trained (full match): "
        "write, check, rewrite, answer",
    )
    max_turns: Positive = Field(
        4,
        description="model calls per rollout, including the final answer; in check-rewrite, the statements written",
    )
    max_tokens: Positive = Field(128, description="tokens that the model may generate per turn")
    temperature: NotNegativeNumber = Field(1.0, description="sampling temperature in training; 0 is greedy")
    val_temperature: NotNegativeNumber = Field(
        0.0, description="sampling temperature in validation, `sql-agent ask` and `evaluate`; 0 is greedy"
    )
    request_timeout_s: Seconds = Field(120.0, description="seconds that one model call may take")
    thinking: Literal["auto", "on", "off"] = Field(
        "auto",
        description="whether the model thinks before it writes, passed to its chat template as `enable_thinking`; "
        "auto: the template's own default. Other servers than this project's and vLLM may refuse a request with on or "
        "off",
    )
    thought_tokens: NotNegative = Field(
        256,
        description="tokens of a thought per turn, besides `agent.max_tokens`, of a model that thinks and that this "
        "machine serves; a longer thought is closed and the model goes on. 0: a thought counts towards "
        "`agent.max_tokens`",
    )
    tool_format: Literal["auto", "hermes", "llama3_json", "mistral", "qwen3_coder", "pythonic", "gemma"] = Field(
        "auto",
        description="form in which a model that this machine serves writes tool calls; auto: the form in which its "
        "chat template writes them",
    )
    chat_template: Path | None = Field(
        None, description="file with a Jinja chat template that replaces the model's own; none: the model's"
    )

    @property
    def enable_thinking(self) -> bool | None:
        """The argument `enable_thinking` of the chat template; None for the template's own default."""
        return {"auto": None, "on": True, "off": False}[self.thinking]

    @field_validator("train_roles")
    @classmethod
    def _is_expression(cls, expression: str) -> str:
        try:
            re.compile(expression)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return expression


class JudgeSettings(Section):
    """The judge that grades the answers, its limits, and the failures that a run accepts."""

    name: str = Field(
        "auto",
        description="facts, llm, llm:MODEL, reward-model, ranking, or several joined by + (a panel: their mean); "
        "auto: llm if TEACHER_MODEL is set, else facts",
    )
    rubric: Path | None = Field(
        None,
        description="TOML file with the rubric of the judge `llm`; none: the built-in one. Questions that the "
        "database cannot answer always use the built-in rubric for refusals",
    )
    reward_model_range: tuple[float, float] = Field(
        (0.0, 1.0), description="lowest and highest score of the reward model, mapped to 0 and 1"
    )
    max_tokens: Positive = Field(
        800, description="tokens of one reply of the judge; doubled at most twice when a reply is cut off"
    )
    timeout_s: Seconds = Field(60.0, description="seconds that one request to the judge may take")
    concurrency: Positive = Field(32, description="concurrent requests to the judge, over all runners")
    requests_per_minute: PositiveNumber | None = Field(
        None, description="requests to the judge per minute, over all runners; none: no limit"
    )
    tokens_per_minute: PositiveNumber | None = Field(
        None, description="tokens to and from the judge per minute, over all runners; none: no limit"
    )
    cache_dir: Path = Field(
        VAR / "judge-cache", description="folder of cached verdicts of judges that are asked over a network"
    )
    max_failed_share: Share = Field(
        0.05,
        description="share of a step's rollouts whose grading may fail; more ends the run. One rollout may always "
        "fail; with the judge `ranking`, one group",
    )

    @field_validator("reward_model_range")
    @classmethod
    def _rises(cls, ends: tuple[float, float]) -> tuple[float, float]:
        if ends[0] >= ends[1]:
            raise ValueError("the lowest score must come first, and below the highest")
        return ends


class RunnerSettings(Section):
    """Runner processes, and limits for lost rollouts."""

    n_runners: Positive = Field(4, description="runner processes")
    concurrency: Positive = Field(
        32, description="concurrent rollouts per runner process, and concurrent questions in `sql-agent evaluate`"
    )
    n_proxies: Positive = Field(1, description="LLM proxy processes; only the verl backend uses more than one")
    rollout_timeout_s: Seconds = Field(300.0, description="seconds after which a rollout counts as lost")
    rollout_retries: NotNegative = Field(3, description="retries of a lost rollout; 0: none")
    max_failed_share: Share = Field(
        0.2, description="share of a step's rollouts that may be lost, including failed gradings; more ends the run"
    )
    stall_s: Seconds = Field(
        60.0,
        description="seconds without a rollout that starts or ends before a message lists the rollouts still running",
    )


class TrainSettings(Section):
    """GRPO (Shao et al. 2024, arXiv:2402.03300) with the asymmetric clip of DAPO (Yu et al. 2025, arXiv:2503.14476)."""

    steps: Positive = Field(20, description="GRPO steps")
    questions_per_step: Count = Field(4, description="questions per step")
    group_size: Annotated[int, Field(ge=2, le=10_000)] = Field(
        4, description="rollouts per question; their rewards are compared with each other"
    )
    lr: PositiveNumber = Field(5e-6, description="learning rate of AdamW, constant")
    clip_low: Share = Field(0.2, description="the probability ratio is clipped below 1 − clip_low")
    clip_high: NotNegativeNumber = Field(0.3, description="the probability ratio is clipped above 1 + clip_high")
    kl_coef: NotNegativeNumber = Field(
        0.0, description="weight of the KL divergence from the initial model, in nats per token; 0: no KL term"
    )
    minibatches: Positive = Field(1, description="optimizer steps per GRPO step, each on a part of the groups")
    micro_batch: Positive = Field(
        4, description="sequences per forward pass, also in sft; verl packs GRPO sequences by tokens instead"
    )
    save_every: Positive = Field(5, description="steps between two checkpoints")
    keep_checkpoints: Positive = Field(2, description="number of newest checkpoints that are kept")


class SftSettings(Section):
    """Supervised fine-tuning on the gold SQL of the training questions, before GRPO. The result is cached on disk."""

    steps: NotNegative = Field(16, description="optimizer steps; 0: GRPO starts from the model as it is")
    batch: Count = Field(8, description="demonstrations per step; task types in proportion to the file")
    lr: PositiveNumber = Field(
        2e-4, description="peak learning rate of AdamW; linear warm-up over the first tenth, then linear decay"
    )


class LocalSettings(Section):
    """The backend `local`, which samples and trains on a CPU."""

    cache_dir: Path = Field(
        VAR / "cache", description="folder of converted and fine-tuned models, also of the verl backend"
    )
    cheap_update: bool = Field(
        False,
        description="GRPO trains the upper half of the layers on the best and the worst rollout of each group, and the "
        "learning rate rises over the first three steps; less than half of the time of a whole update",
    )
    validate_untrained: bool = Field(
        False, description="validate the model before supervised fine-tuning too, as the first column of the result"
    )
    max_context: Positive = Field(
        2048, description="tokens of prompt and reply together; a longer request ends its rollout"
    )


class VerlSettings(Section):
    """The backend `verl`, which samples and trains on GPUs."""

    n_gpus: Positive = Field(1, description="GPUs per host, or NPUs with --device npu")
    nnodes: Positive = Field(1, description="hosts of the Ray cluster")
    lora_rank: NotNegative = Field(
        0, description="rank of the trained LoRA adapters, also of the backend local; 0: all weights are trained"
    )
    trainer_mode: Literal["sync", "colocate_async", "separate_async"] = Field(
        "sync", description="verl's trainer; separate_async samples on half of the GPUs and needs at least two"
    )
    gpu_memory_gb: Literal["auto"] | PositiveNumber = Field(
        "auto", description="GB of GPU memory to plan for; auto: the free memory of this host's fullest GPU"
    )
    test_every: NotNegative = Field(0, description="steps between two validations; 0: only before and after the run")
    dynamic_sampling: NotNegative = Field(
        0,
        description="DAPO's dynamic sampling: run up to this multiple of a step's rollouts until the step has enough "
        "groups whose rewards differ; 0: train on the groups of one round",
    )
    host: str = Field("127.0.0.1", description="address of this host that other hosts can reach; needed for nnodes > 1")
    config: dict[str, Any] = Field(
        default_factory=dict,
        description="options of verl, key by key: verl.config.actor_rollout_ref.rollout.max_num_seqs=512; the group "
        "verl.config.sql_agent is ours (endpoints, level)",
    )

    @field_validator("dynamic_sampling")
    @classmethod
    def _leaves_room(cls, times: int) -> int:
        if times == 1:
            raise ValueError("the first group with equal rewards would end the run; give 2 or more, or 0")
        return times


class TrackingSettings(Section):
    """Trackers, which receive the metrics and rollouts of a run. A tracker that fails does not stop the run."""

    to: tuple[Literal["wandb", "swanlab", "tensorboard"], ...] = Field(
        (), description="trackers: wandb, swanlab, tensorboard; several separated by commas (extra `tracking`)"
    )
    project: str = Field("sql-agent", description="project name at the tracker")


class Settings(Section):
    """The task, the model, the backend and the folder of results. `load_settings` builds this."""

    lang: Lang = Field(
        "en", description="language of the natural questions and of the sample database (used if no database is given)"
    )
    task: str = Field(
        "medical", description="medical, spider, ehrsql, NAME.toml, or package.module:NAME for your own Task"
    )
    model: str = Field("", description="Hugging Face folder or id; empty: the embedded SmolLM2-135M-Instruct")
    backend: Literal["auto", "local", "verl"] = Field(
        "auto", description="where to train; auto: verl if it is installed and a GPU is there, else local"
    )
    run_name: str = Field("", description="folder of the run under `runs_dir`; empty: date and time")
    runs_dir: Path = Field(RUNS, description="folder of all runs")
    seed: Annotated[int, Field(ge=0, le=_MAX_SEED)] = Field(
        0,
        description="seed of question order, sampling and fine-tuning, in the range that PyTorch, NumPy and vLLM share",
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
            raise ValueError("not the plain name of one folder, such as night-1; set its parent folder with runs_dir")
        return name

    def database_limits(self) -> QueryLimits:
        return QueryLimits(
            deadline_s=self.database.deadline_s, max_rows=self.database.max_rows, max_chars=self.database.max_chars
        )
