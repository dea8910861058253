"""Define the settings in sections, each with type, default and description, and the folders of caches and runs."""

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
    """Return the folder of the checkout; "." if that is the working directory, or if there is no checkout."""
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
Count = Annotated[int, Field(gt=0, le=1_000_000)]  # number of questions or demonstrations, which are all in memory
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
        description="SQLite file to query; none: the database of DATABASE_URL, else the sample in the language "
        "`lang`, which is made if missing",
    )
    deadline_s: Seconds = Field(2.0, description="time limit of a query in seconds")
    max_rows: Positive = Field(20, description="maximum rows of a query's result that the model gets")
    max_chars: Annotated[int, Field(ge=200)] = Field(
        1500, description="maximum characters of a query's result, as JSON without the hint, that the model gets"
    )


class DataSettings(Section):
    """The training and validation questions."""

    train_file: Path | None = Field(
        None, description="file of training questions, parquet or JSONL; none: questions generated for the database"
    )
    val_file: Path | None = Field(
        None, description="file of validation questions, parquet or JSONL; none: questions generated for the database"
    )
    mapping: Path | None = Field(
        None,
        description="TOML file that maps the columns of docs/questions.md to columns of the question files; none: "
        "same names",
    )
    style: Style = Field(
        "mixed",
        description="wording of generated questions; template: fixed sentences; mixed: fixed sentences and everyday "
        "wordings",
    )
    task_types: tuple[str, ...] = Field(
        (), description="types of the questions to train and validate on, separated by commas; empty: all types"
    )
    val_questions: Positive = Field(
        24, description="number of template questions in a validation, evenly spaced over the validation file"
    )
    natural_questions: NotNegative = Field(
        12,
        description="number of natural questions in a validation, spread over the question types of the task's "
        "benchmark in the language `lang`; 0: none, the default of `--ci-fast` on a CPU",
    )


class SpiderSettings(Section):
    """The tasks `spider` and `ehrsql`: an answer is an SQL statement, graded by its result in a SQLite database."""

    data_dir: Path | None = Field(
        None,
        description="folder in Spider's layout: databases as database/NAME/NAME.sqlite, questions as JSON or parquet",
    )
    val_databases: NotNegative = Field(
        15, description="number of databases that are held out of training for validation; 0: none"
    )
    schema_chars: Positive = Field(
        6000,
        description="maximum characters of the database's schema in the prompt; a longer schema first loses sample "
        "values, then columns",
    )
    schema_values: NotNegative = Field(2, description="number of sample values of each text column in the prompt")
    partial_credit: Annotated[float, Field(ge=0.0, le=0.5)] = Field(
        0.0,
        description="reward of a wrong result that has exactly the cells of the gold result; other wrong results get "
        "this reward times the F1 score of their cells",
    )
    penalty: Share = Field(
        0.0,
        description="subtracted from the reward of a wrong answer, so that guessing pays less than abstaining, whose "
        "reward is 0",
    )
    deadline_s: Seconds = Field(
        10.0, description="time limit in seconds of a statement whose result is compared with the gold result"
    )


class AgentSettings(Section):
    """The agent, and how its model is sampled."""

    tool: Literal["builtin", "mcp"] = Field(
        "builtin",
        description="where the statements of the model run; builtin: in worker processes of this host; mcp: on an MCP "
        "server (`sql-agent mcp`)",
    )
    mcp_url: str | None = Field(
        None,
        description="URL of the MCP server, such as http://127.0.0.1:8765/mcp; the token of the server is MCP_TOKEN",
    )
    mcp_command: str | None = Field(
        None,
        description="command that starts an MCP server over stdio, such as sql-agent mcp; used instead of "
        "`agent.mcp_url`",
    )
    workflow: Literal["react", "check-rewrite"] = Field(
        "react",
        description="react: the model calls the tool until it answers; check-rewrite: the model writes a statement, "
        "checks the result and rewrites the statement, with a role and a prompt for each",
    )
    train_roles: str = Field(
        "write|rewrite",
        description="regular expression for the names of the roles to train (full match), in a workflow with the roles "
        "write, check, rewrite, answer",
    )
    max_turns: Positive = Field(
        4,
        description="maximum model calls per rollout, the final answer included; in check-rewrite: maximum statements",
    )
    max_tokens: Positive = Field(128, description="maximum tokens that the model generates per turn")
    temperature: NotNegativeNumber = Field(1.0, description="sampling temperature in training; 0 is greedy")
    val_temperature: NotNegativeNumber = Field(
        0.0, description="sampling temperature in validation, `sql-agent ask` and `evaluate`; 0 is greedy"
    )
    request_timeout_s: Seconds = Field(120.0, description="time limit of a model call in seconds")
    thinking: Literal["auto", "on", "off"] = Field(
        "auto",
        description="whether the model thinks before it answers, passed to its chat template as `enable_thinking`; "
        "auto: the template's default. With on or off, a server other than vLLM or this project's may "
        "refuse requests",
    )
    thought_tokens: NotNegative = Field(
        256,
        description="maximum tokens of the thought in a turn, in addition to `agent.max_tokens`; a longer thought is "
        "cut, and the model goes on to answer. 0: a thought counts towards `agent.max_tokens`. Only for a "
        "thinking model that this host serves",
    )
    tool_format: Literal["auto", "hermes", "llama3_json", "mistral", "qwen3_coder", "pythonic", "gemma"] = Field(
        "auto",
        description="format in which the model writes tool calls; auto: the format of its chat template. Only for a "
        "model that this host serves",
    )
    chat_template: Path | None = Field(
        None,
        description="file with a Jinja chat template that replaces the template of the model; none: the template of "
        "the model",
    )

    @property
    def enable_thinking(self) -> bool | None:
        """Return the argument `enable_thinking` of the chat template; None: the default of the template."""
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
        description="facts, llm, llm:MODEL, reward-model or ranking; several joined by + are a panel, which gives the "
        "mean of their scores; auto: llm if TEACHER_MODEL is set, else facts",
    )
    rubric: Path | None = Field(
        None,
        description="TOML file with the rubric of the judge `llm`; none: the built-in rubric. Where the database has "
        "no answer, the judge always uses the built-in rubric for refusals",
    )
    reward_model_range: tuple[float, float] = Field(
        (0.0, 1.0), description="lowest and highest score of the reward model, which are mapped to 0 and 1"
    )
    max_tokens: Positive = Field(
        800,
        description="maximum tokens of a reply of the judge; after a reply that is cut off, the limit is doubled, at "
        "most twice",
    )
    timeout_s: Seconds = Field(60.0, description="time limit of a request to the judge in seconds")
    concurrency: Positive = Field(32, description="maximum concurrent requests to the judge, summed over all runners")
    requests_per_minute: PositiveNumber | None = Field(
        None, description="maximum requests to the judge per minute, summed over all runners; none: no limit"
    )
    tokens_per_minute: PositiveNumber | None = Field(
        None, description="maximum tokens to and from the judge per minute, summed over all runners; none: no limit"
    )
    cache_dir: Path = Field(
        VAR / "judge-cache", description="folder of cached verdicts of judges that are called over a network"
    )
    max_failed_share: Share = Field(
        0.05,
        description="share of a step's rollouts that the judge may fail to grade; a larger share ends the run. One "
        "rollout (with the judge `ranking`: one group) may always fail",
    )

    @field_validator("reward_model_range")
    @classmethod
    def _rises(cls, ends: tuple[float, float]) -> tuple[float, float]:
        if ends[0] >= ends[1]:
            raise ValueError("the lowest score must come first, and below the highest")
        return ends


class RunnerSettings(Section):
    """Runner processes, and limits for lost rollouts."""

    n_runners: Positive = Field(4, description="number of runner processes")
    concurrency: Positive = Field(
        32,
        description="maximum concurrent rollouts per runner process, and concurrent questions in `sql-agent evaluate`",
    )
    n_proxies: Positive = Field(
        1, description="number of LLM proxy processes; only the backend verl uses more than one"
    )
    rollout_timeout_s: Seconds = Field(300.0, description="seconds after which a running rollout counts as lost")
    rollout_retries: NotNegative = Field(3, description="maximum retries of a lost rollout")
    max_failed_share: Share = Field(
        0.2,
        description="share of a step's rollouts that may be lost, including those that the judge failed to grade; a "
        "larger share ends the run",
    )
    stall_s: Seconds = Field(
        60.0,
        description="seconds without the start or the end of a rollout, after which a message lists the running "
        "rollouts",
    )


class TrainSettings(Section):
    """GRPO (Shao et al. 2024, arXiv:2402.03300) with the asymmetric clip of DAPO (Yu et al. 2025, arXiv:2503.14476)."""

    steps: Positive = Field(20, description="number of GRPO steps")
    questions_per_step: Count = Field(4, description="number of questions per step")
    group_size: Annotated[int, Field(ge=2, le=10_000)] = Field(
        4, description="rollouts per question, which form a group; GRPO compares the rewards within a group"
    )
    lr: PositiveNumber = Field(5e-6, description="learning rate of AdamW, constant")
    clip_low: Share = Field(0.2, description="the probability ratio is clipped to at least 1 − clip_low")
    clip_high: NotNegativeNumber = Field(0.3, description="the probability ratio is clipped to at most 1 + clip_high")
    kl_coef: NotNegativeNumber = Field(
        0.0, description="weight of the KL divergence from the initial model, in nats per token; 0: no KL term"
    )
    minibatches: Positive = Field(1, description="optimizer steps per GRPO step, each on a part of the groups")
    micro_batch: Positive = Field(
        4,
        description="sequences per forward pass, in supervised fine-tuning too; with verl, GRPO limits the tokens per "
        "forward pass instead",
    )
    save_every: Positive = Field(5, description="steps between two checkpoints")
    keep_checkpoints: Positive = Field(2, description="number of newest checkpoints to keep")
    validate_untrained: bool = Field(
        False,
        description="also validate the model before supervised fine-tuning, for the first column of the result",
    )


class SftSettings(Section):
    """Supervised fine-tuning on the gold SQL of the training questions, before GRPO. The result is cached on disk."""

    steps: NotNegative = Field(16, description="number of optimizer steps; 0: GRPO starts from the unchanged model")
    batch: Count = Field(
        8,
        description="demonstrations per step; each question type has the same share as in the training file, but fewer "
        "than 512 demonstrations are all of the type lookup",
    )
    lr: PositiveNumber = Field(
        2e-4, description="peak learning rate of AdamW; linear warm-up over the first tenth, then linear decay"
    )


class LocalSettings(Section):
    """The backend `local`, which samples and trains on a CPU."""

    cache_dir: Path = Field(
        VAR / "cache", description="folder of converted and fine-tuned models, also for the backend verl"
    )
    cheap_update: bool = Field(
        False,
        description="cheaper GRPO update, in less than half of the time: trains the upper half of the layers, on the "
        "best and the worst rollout of each group; the learning rate rises over the first three steps",
    )
    max_context: Positive = Field(
        2048, description="maximum tokens of a prompt and its reply together; a longer request ends its rollout"
    )


class VerlSettings(Section):
    """The backend `verl`, which samples and trains on GPUs."""

    n_gpus: Positive = Field(1, description="number of GPUs per host (with --device npu: of NPUs)")
    nnodes: Positive = Field(1, description="number of hosts in the Ray cluster")
    lora_rank: NotNegative = Field(
        0, description="rank of the trained LoRA adapters, with either backend; 0: train all weights"
    )
    trainer_mode: Literal["sync", "colocate_async", "separate_async"] = Field(
        "sync",
        description="trainer of verl; separate_async samples on one half of the GPUs and trains on the other half",
    )
    gpu_memory_gb: Literal["auto"] | PositiveNumber = Field(
        "auto",
        description="GPU memory in GB, from which the tokens per forward pass are computed; auto: the free memory of "
        "the GPU of this host that has least",
    )
    test_every: NotNegative = Field(
        0, description="steps between two validations; 0: validate only before and after the run"
    )
    dynamic_sampling: NotNegative = Field(
        0,
        description="dynamic sampling of DAPO: a step runs further rollouts, up to this multiple of its usual number, "
        "until enough groups have different rewards; 0: off",
    )
    host: str = Field("127.0.0.1", description="address at which other hosts reach this host; needed for nnodes > 1")
    config: dict[str, Any] = Field(
        default_factory=dict,
        description="options of verl by name, such as verl.config.actor_rollout_ref.rollout.max_num_seqs=512; "
        "verl.config.sql_agent has this project's own options, endpoints and level",
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
        (), description="wandb, swanlab, tensorboard, or several separated by commas; needs the extra `tracking`"
    )
    project: str = Field("sql-agent", description="name of the project in the tracker")


class Settings(Section):
    """The task, the model, the backend and the folder of results. `load_settings` builds this."""

    lang: Lang = Field(
        "en", description="language of the natural questions and of the sample database (used if no database is given)"
    )
    task: str = Field(
        "medical", description="medical, spider, ehrsql, a file NAME.toml, or package.module:NAME for your own Task"
    )
    model: str = Field("", description="Hugging Face folder or id; empty: the bundled SmolLM2-135M-Instruct")
    backend: Literal["auto", "local", "verl"] = Field(
        "auto", description="where to train; auto: verl if it is installed and a GPU is there, else local"
    )
    run_name: str = Field("", description="name of the run's folder in `runs_dir`; empty: date and time")
    runs_dir: Path = Field(RUNS, description="folder of all runs")
    seed: Annotated[int, Field(ge=0, le=_MAX_SEED)] = Field(
        0,
        description="seed of the order of questions, of sampling and of fine-tuning",
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
            raise ValueError(
                "must be the name of a folder without a path, such as night-1; runs_dir sets the parent folder"
            )
        return name

    def database_limits(self) -> QueryLimits:
        return QueryLimits(
            deadline_s=self.database.deadline_s, max_rows=self.database.max_rows, max_chars=self.database.max_chars
        )
