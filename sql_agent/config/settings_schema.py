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
    """Return the folder of the checkout; "." without a checkout, or if the checkout is the working directory."""
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


def _setting(default: Any, description: str) -> Any:
    return Field(default, description=description)


class Section(BaseModel):
    """Base of all sections: refuses unknown keys, infinities and NaN, and parses strings; see `_read_text`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _read_text(cls, value: Any, info: ValidationInfo) -> Any:
        """Parse strings that pydantic refuses: `none` and "" as None, `0,10` and `[0,10]` as a tuple."""
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

    path: Path | None = _setting(
        None,
        "SQLite file to query; none: the database of DATABASE_URL, else the sample in the language `lang`, which is "
        "made if missing",
    )
    deadline_s: Seconds = _setting(2.0, "time limit of a query in seconds")
    max_rows: Positive = _setting(20, "maximum rows of a query's result that the model gets")
    max_chars: Annotated[int, Field(ge=200)] = _setting(
        1500, "maximum characters of a query's result, as JSON without the hint, that the model gets"
    )

    def limits(self) -> QueryLimits:
        return QueryLimits(deadline_s=self.deadline_s, max_rows=self.max_rows, max_chars=self.max_chars)


class DataSettings(Section):
    """The training and validation questions."""

    train_file: Path | None = _setting(
        None, "file of training questions, parquet or JSONL; none: questions generated for the database"
    )
    val_file: Path | None = _setting(
        None, "file of validation questions, parquet or JSONL; none: questions generated for the database"
    )
    mapping: Path | None = _setting(
        None, "TOML file that maps the columns of docs/questions.md to those of the question files; none: same names"
    )
    style: Style = _setting(
        "mixed", "wording of generated questions; template: fixed sentences; mixed: also everyday wordings"
    )
    task_types: tuple[str, ...] = _setting(
        (), "types of the questions to train and validate on, separated by commas; empty: all types"
    )
    val_questions: Positive = _setting(
        24, "number of template questions in a validation, evenly spaced over the validation file"
    )
    natural_questions: NotNegative = _setting(
        12,
        "number of natural questions in a validation, spread over the question types of the task's benchmark in the "
        "language `lang`; 0: none, the default of `--ci-fast` on a CPU",
    )


class SpiderSettings(Section):
    """The tasks `spider` and `ehrsql`: an answer is an SQL statement, graded by its result in a SQLite database."""

    data_dir: Path | None = _setting(
        None, "folder in Spider's layout: databases as database/NAME/NAME.sqlite, questions as JSON or parquet"
    )
    val_databases: NotNegative = _setting(
        15, "number of databases that are held out of training for validation; 0: none"
    )
    schema_chars: Positive = _setting(
        6000, "maximum characters of the schema in the prompt; a longer schema first loses sample values, then columns"
    )
    schema_values: NotNegative = _setting(2, "number of sample values of each text column in the prompt")
    partial_credit: Annotated[float, Field(ge=0.0, le=0.5)] = _setting(
        0.0,
        "reward of a wrong result with exactly the cells of the gold result; other wrong results get this reward "
        "times the F1 score of their cells",
    )
    penalty: Share = _setting(
        0.0, "subtracted from the reward of a wrong answer, so that guessing pays less than abstaining (reward 0)"
    )
    deadline_s: Seconds = _setting(
        10.0, "time limit in seconds of a statement whose result is compared with the gold result"
    )


class AgentSettings(Section):
    """The agent, and how its model is sampled."""

    tool: Literal["builtin", "mcp"] = _setting(
        "builtin",
        "where the model's statements run; builtin: in worker processes of this host; mcp: on an MCP server "
        "(`sql-agent mcp`)",
    )
    mcp_url: str | None = _setting(
        None, "URL of the MCP server, such as http://127.0.0.1:8765/mcp; its bearer token is MCP_TOKEN"
    )
    mcp_command: str | None = _setting(
        None, "command that starts an MCP server over stdio, such as sql-agent mcp; used instead of `agent.mcp_url`"
    )
    workflow: Literal["react", "check-rewrite"] = _setting(
        "react",
        "react: the model calls the tool until it answers; check-rewrite: the model writes a statement, checks the "
        "result and rewrites the statement, with a role and a prompt for each",
    )
    train_roles: str = _setting(
        "write|rewrite",
        "in check-rewrite: regular expression for the whole name of each role to train, among write, check, "
        "rewrite, answer",
    )
    max_turns: Positive = _setting(
        4, "maximum model calls per rollout, the final answer included; in check-rewrite: maximum statements"
    )
    max_tokens: Positive = _setting(128, "maximum tokens that the model generates per turn")
    temperature: NotNegativeNumber = _setting(1.0, "sampling temperature in training; 0 is greedy")
    val_temperature: NotNegativeNumber = _setting(
        0.0, "sampling temperature in validation, `sql-agent ask` and `evaluate`; 0 is greedy"
    )
    request_timeout_s: Seconds = _setting(120.0, "time limit of a model call in seconds")
    thinking: Literal["auto", "on", "off"] = _setting(
        "auto",
        "whether the model thinks before it answers, passed to its chat template as `enable_thinking`; auto: the "
        "template's default. With on or off, a server other than vLLM or this project's may refuse requests",
    )
    thought_tokens: NotNegative = _setting(
        256,
        "maximum tokens of the thought in a turn, in addition to `agent.max_tokens`; a longer thought is cut, and "
        "the model goes on to answer. 0: a thought counts towards `agent.max_tokens`. Only for a thinking model "
        "that this host serves",
    )
    tool_format: Literal["auto", "hermes", "llama3_json", "mistral", "qwen3_coder", "pythonic", "gemma"] = _setting(
        "auto",
        "format of the model's tool calls; auto: that of its chat template. Only for a model that this host serves",
    )
    chat_template: Path | None = _setting(
        None, "file with a Jinja chat template to use in place of the model's own; none: the model's own"
    )

    @property
    def enable_thinking(self) -> bool | None:
        """Return the argument `enable_thinking` of the chat template; None means the template's default."""
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

    name: str = _setting(
        "auto",
        "facts, llm, llm:MODEL, reward-model or ranking; several joined by + are a panel, whose score is their "
        "mean; auto: llm if TEACHER_MODEL is set, else facts",
    )
    rubric: Path | None = _setting(
        None,
        "TOML file with the rubric of the judge `llm`; none: the built-in rubric. Where the database has no answer, "
        "the judge always uses the built-in rubric for refusals",
    )
    reward_model_range: tuple[float, float] = _setting(
        (0.0, 1.0), "lowest and highest score of the reward model, which are mapped to 0 and 1"
    )
    max_tokens: Positive = _setting(
        800,
        "maximum tokens of a reply of the judge; after a reply that is cut off, the limit is doubled, at most twice",
    )
    timeout_s: Seconds = _setting(60.0, "time limit of a request to the judge in seconds")
    concurrency: Positive = _setting(32, "maximum concurrent requests to the judge, summed over all runners")
    requests_per_minute: PositiveNumber | None = _setting(
        None, "maximum requests to the judge per minute, summed over all runners; none: no limit"
    )
    tokens_per_minute: PositiveNumber | None = _setting(
        None, "maximum tokens to and from the judge per minute, summed over all runners; none: no limit"
    )
    cache_dir: Path = _setting(
        VAR / "judge-cache", "folder of cached verdicts of judges that are called over a network"
    )
    max_failed_share: Share = _setting(
        0.05,
        "share of a step's rollouts that the judge may fail to grade; a larger share ends the run. One rollout "
        "(with the judge `ranking`: one group) may always fail",
    )

    @field_validator("reward_model_range")
    @classmethod
    def _rises(cls, ends: tuple[float, float]) -> tuple[float, float]:
        if ends[0] >= ends[1]:
            raise ValueError("the lowest score must come first, and below the highest")
        return ends


class RunnerSettings(Section):
    """Runner processes, and limits for lost rollouts."""

    n_runners: Positive = _setting(4, "number of runner processes")
    concurrency: Positive = _setting(
        32, "maximum concurrent rollouts per runner process, and concurrent questions in `sql-agent evaluate`"
    )
    n_proxies: Positive = _setting(1, "number of LLM proxy processes; only the backend verl uses more than one")
    rollout_timeout_s: Seconds = _setting(300.0, "seconds after which a running rollout counts as lost")
    rollout_retries: NotNegative = _setting(3, "maximum retries of a lost rollout")
    max_failed_share: Share = _setting(
        0.2,
        "share of a step's rollouts that may be lost, including those that the judge failed to grade; a "
        "larger share ends the run",
    )
    stall_s: Seconds = _setting(
        60.0, "seconds in which no rollout starts or ends, after which a message lists the running rollouts"
    )


class TrainSettings(Section):
    """GRPO (Shao et al. 2024, arXiv:2402.03300) with the asymmetric clip of DAPO (Yu et al. 2025, arXiv:2503.14476)."""

    steps: Positive = _setting(20, "number of GRPO steps")
    questions_per_step: Count = _setting(4, "number of questions per step")
    group_size: Annotated[int, Field(ge=2, le=10_000)] = _setting(
        4, "rollouts per question, which form a group; GRPO compares the rewards within a group"
    )
    lr: PositiveNumber = _setting(5e-6, "learning rate of AdamW, constant")
    clip_low: Share = _setting(0.2, "the probability ratio is clipped to at least 1 − clip_low")
    clip_high: NotNegativeNumber = _setting(0.3, "the probability ratio is clipped to at most 1 + clip_high")
    kl_coef: NotNegativeNumber = _setting(
        0.0, "weight of the KL divergence from the initial model, in nats per token; 0: no KL term"
    )
    minibatches: Positive = _setting(1, "optimizer steps per GRPO step, each on a part of the groups")
    micro_batch: Positive = _setting(
        4,
        "sequences per forward pass, also in supervised fine-tuning; with verl, GRPO limits the tokens per forward "
        "pass instead",
    )
    save_every: Positive = _setting(5, "steps between two checkpoints")
    keep_checkpoints: Positive = _setting(2, "number of newest checkpoints to keep")
    validate_untrained: bool = _setting(
        False, "also validate the model before supervised fine-tuning, for the first column of the result"
    )


class SftSettings(Section):
    """Supervised fine-tuning on the gold SQL of the training questions, before GRPO. The result is cached on disk."""

    steps: NotNegative = _setting(16, "number of optimizer steps; 0: GRPO starts from the unchanged model")
    batch: Count = _setting(
        8,
        "demonstrations per step; if there are fewer than questions, the share of a question type grows with the "
        "square root of its number, and fewer than 512 are all of the type lookup",
    )
    lr: PositiveNumber = _setting(
        2e-4, "peak learning rate of AdamW; linear warm-up over the first tenth, then linear decay"
    )


class LocalSettings(Section):
    """The backend `local`, which samples and trains on a CPU."""

    cache_dir: Path = _setting(VAR / "cache", "folder of converted and fine-tuned models, also for the backend verl")
    cheap_update: bool = _setting(
        False,
        "cheaper GRPO update, in less than half of the time: trains the upper half of the layers on the best and "
        "the worst rollout of each group; the learning rate rises over the first three steps",
    )
    max_minutes: PositiveNumber | None = _setting(
        None,
        "time limit in minutes, fine-tuning and validations included: no GRPO step begins that would end after it; "
        "the first step is always done",
    )
    max_context: Positive = _setting(
        2048, "maximum tokens of a prompt and its reply together; a longer request ends its rollout"
    )


class VerlSettings(Section):
    """The backend `verl`, which samples and trains on GPUs."""

    n_gpus: Positive = _setting(1, "number of GPUs per host (with --device npu: of NPUs)")
    nnodes: Positive = _setting(1, "number of hosts in the Ray cluster")
    lora_rank: NotNegative = _setting(0, "rank of the trained LoRA adapters, with either backend; 0: train all weights")
    trainer_mode: Literal["sync", "colocate_async", "separate_async"] = _setting(
        "sync", "trainer of verl; separate_async samples on one half of the GPUs and trains on the other half"
    )
    gpu_memory_gb: Literal["auto"] | PositiveNumber = _setting(
        "auto",
        "GPU memory in GB, from which the tokens per forward pass are computed; auto: the least free memory of any "
        "GPU of this host",
    )
    test_every: NotNegative = _setting(0, "steps between two validations; 0: validate only before and after the run")
    dynamic_sampling: NotNegative = _setting(
        0,
        "dynamic sampling of DAPO: a step runs further rollouts, up to this multiple of its usual number, until "
        "enough groups have different rewards; 0: off",
    )
    host: str = _setting("127.0.0.1", "address at which other hosts reach this host; needed for nnodes > 1")
    config: dict[str, Any] = _setting(
        {},
        "options of verl by name, such as verl.config.actor_rollout_ref.rollout.max_num_seqs=512; "
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

    to: tuple[Literal["wandb", "swanlab", "tensorboard"], ...] = _setting(
        (), "wandb, swanlab, tensorboard, or several separated by commas; needs the extra `tracking`"
    )
    project: str = _setting("sql-agent", "name of the project in the tracker")


class Settings(Section):
    """The task, the model, the backend and the folder of results. `load_settings` builds this."""

    lang: Lang = _setting(
        "en", "language of the natural questions and of the sample database (used if no database is given)"
    )
    task: str = _setting(
        "medical", "medical, spider, ehrsql, a file NAME.toml, or package.module:NAME for your own Task"
    )
    model: str = _setting("", "Hugging Face folder or id; empty: the bundled SmolLM2-135M-Instruct")
    backend: Literal["auto", "local", "verl"] = _setting(
        "auto", "where to train; auto: verl if it is installed and a GPU is there, else local"
    )
    run_name: str = _setting("", "name of the run's folder in `runs_dir`; empty: date and time")
    runs_dir: Path = _setting(RUNS, "folder of all runs")
    seed: Annotated[int, Field(ge=0, le=_MAX_SEED)] = _setting(
        0, "seed of the order of questions, of sampling and of fine-tuning"
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
