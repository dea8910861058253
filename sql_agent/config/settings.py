"""Every setting of the project, where it comes from, and what it means.

Precedence, strongest first: dotted overrides on the command line (`train.lr=1e-5`), environment variables
(`SQL_AGENT_TRAIN__LR`), the file `.env`, a TOML file given with `--config`, the defaults below. The judge's and the
endpoint's conventional names (`TEACHER_MODEL`, `OPENAI_API_BASE`, …) are read as well.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from sql_agent.config.paths import ENV_FILES, RUNS, VAR
from sql_agent.database.limits import Limits
from sql_agent.errors import ConfigError
from sql_agent.schemas import Lang

Positive = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """Base of the sections below: an unknown key is an error, not a silent no-op."""

    model_config = ConfigDict(extra="forbid")


class DatabaseSettings(Section):
    """The medical database and the limits of one query."""

    path: Path | None = Field(None, description="SQLite file; default: the sample of `lang`")
    deadline_s: Seconds = 2.0
    max_rows: Positive = 20
    max_chars: Positive = 1500


class DataSettings(Section):
    """Which questions are trained and validated on."""

    train_file: Path | None = Field(None, description="parquet or JSONL; default: the sample's train split")
    val_file: Path | None = Field(None, description="parquet or JSONL; default: the sample's val split")
    val_questions: Positive = 24


class AgentSettings(Section):
    """How the agent runs. Training samples, validation is greedy."""

    max_turns: Positive = Field(4, description="calls of the model in one rollout, the final answer included")
    max_tokens: Positive = Field(128, description="sampled tokens per turn")
    temperature: Annotated[float, Field(ge=0.0)] = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    val_temperature: Annotated[float, Field(ge=0.0)] = 0.0
    val_top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    request_timeout_s: Seconds = 120.0


class JudgeSettings(Section):
    """Who grades the answers, within which limits, and how many failures a run endures."""

    name: str = Field("reference", description="reference, llm, llm:MODEL, reward-model, ranking; A+B is a panel")
    combine: Literal["mean", "min"] = Field("mean", description="how a panel's scores become one")
    absolute: str = Field("reference", description="who grades single answers for the judge ranking")
    rubric: Path | None = Field(None, description="TOML file for the judge llm; default: reward/rubrics/default.toml")
    scale: Path | None = Field(None, description="a rescaling of the scores, made by utils/reward_scale.py")
    reward_model_range: tuple[float, float] = Field((0.0, 1.0), description="ends of the reward model's scale")
    max_answer_chars: Positive = Field(2000, description="a longer answer earns nothing")
    structure: Literal["json_schema", "json_object", "none"] = Field(
        "json_schema", description="how the endpoint is told the form of its reply; not every endpoint knows all"
    )
    max_tokens: Positive = Field(800, description="of one reply of the judge")
    timeout_s: Seconds = Field(60.0, description="of one request")
    attempts: Positive = Field(6, description="requests for one grading, retries and repairs included")
    concurrency: Positive = Field(32, description="requests at once, of all runners together")
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    tokens_per_minute: Annotated[float, Field(gt=0)] | None = None
    cache: bool = Field(True, description="keep the verdicts of judges that are asked over a network")
    cache_dir: Path = VAR / "judge-cache"
    max_failed_share: Share = Field(0.05, description="of a step's rollouts; more stops the run")
    evaluations_dir: Path = Field(VAR / "judges", description="what `sql-agent judge evaluate` found, by judge")
    min_agreement: Share = Field(0.6, description="Spearman with labels below which no run starts")
    allow_weak: bool = Field(False, description="train with a judge below min_agreement all the same")


class RunnerSettings(Section):
    """Runner processes and the store they talk to."""

    n_runners: Positive = Field(4, description="processes")
    concurrency: Positive = Field(32, description="rollouts at once in each runner process")
    n_proxies: Positive = Field(1, description="LLM proxy processes; the verl backend gains from several")
    store_port: Annotated[int, Field(ge=0, le=65535)] = Field(0, description="0 takes a free port")
    poll_s: Seconds = Field(0.2, description="how often a store that runs elsewhere is asked for rollouts")
    rollout_timeout_s: Seconds = 300.0
    span_deadline_s: Seconds = 10.0
    rollout_retries: Annotated[int, Field(ge=0)] = Field(3, description="runs of a lost rollout, beyond the first")
    max_failed_share: Share = Field(0.2, description="of a step's rollouts; more stops the run")
    stall_s: Seconds = Field(60.0, description="say who is waited for when no rollout ended for so long")


class TrainSettings(Section):
    """GRPO (Shao et al. 2024, arXiv:2402.03300) with the asymmetric clip of DAPO (Yu et al. 2025, arXiv:2503.14476)."""

    steps: Positive = 20
    questions_per_step: Positive = 4
    group_size: Annotated[int, Field(ge=2)] = 4
    lr: Annotated[float, Field(gt=0.0)] = 5e-6
    clip_low: Share = 0.2
    clip_high: Annotated[float, Field(ge=0.0)] = 0.3
    kl_coef: Annotated[float, Field(ge=0.0)] = 0.0
    minibatches: Positive = Field(1, description="optimizer steps per GRPO step, each on a part of the groups")
    micro_batch: Positive = Field(8, description="sequences per forward pass")
    max_grad_norm: Annotated[float, Field(gt=0.0)] = 1.0
    save_every: Positive = 5
    keep_checkpoints: Positive = 2


class SftSettings(Section):
    """The supervised start on the training questions' own SQL; its result is cached on disk."""

    steps: Annotated[int, Field(ge=0)] = Field(16, description="0 trains the model as it is")
    batch: Positive = 8
    lr: Annotated[float, Field(gt=0.0)] = 2e-4


class LocalSettings(Section):
    """The CPU backend."""

    cache_dir: Path = VAR / "cache"
    threads: Annotated[int, Field(ge=0)] = Field(0, description="torch threads; 0 takes all cores")
    bf16: bool | None = Field(None, description="bf16 autocast in training; default: when the CPU has it in hardware")
    max_batch: Positive = Field(16, description="requests generated together")
    batch_window_s: Seconds = Field(0.15, description="a batch starts after this long without a new request")
    max_context: Positive = 2048


class VerlSettings(Section):
    """The GPU backend. `config` holds verl's own configuration; see backends/verl/grpo.toml."""

    n_gpus: Positive = Field(1, description="GPUs of each host")
    nnodes: Positive = Field(1, description="hosts of the Ray cluster")
    lora_rank: Annotated[int, Field(ge=0)] = Field(0, description="0 trains all weights")
    trainer_mode: Literal["sync", "colocate_async", "separate_async"] = "sync"
    level: Literal["trajectory", "transition"] = Field("trajectory", description="what a training sequence holds")
    gpu_memory_gb: Literal["auto", "24", "40", "80"] = "auto"
    endpoints: Positive = Field(4, description="processes that render and parse conversations for the policy")
    test_every: Annotated[int, Field(ge=0)] = Field(0, description="validate every so many steps; 0: before and after")
    dynamic_sampling: Annotated[int, Field(ge=0)] = Field(
        0,
        description="train only on groups whose rewards differ (DAPO's dynamic sampling); at most so many times a "
        "step's rollouts are run to find them; 0 trains on all groups",
    )
    host: str = Field("127.0.0.1", description="the address of this host that other hosts reach; needed for nnodes > 1")
    config: dict[str, Any] = Field(default_factory=dict)


class TeacherSettings(BaseSettings):
    """The judge's endpoints, from the conventional variables or `.env`."""

    model_config = SettingsConfigDict(env_file=ENV_FILES, extra="ignore", populate_by_name=True)

    model: str | None = Field(None, validation_alias=AliasChoices("TEACHER_MODEL"))
    base_url: str | None = Field(None, validation_alias=AliasChoices("TEACHER_BASE_URL"))
    api_key: SecretStr | None = Field(None, validation_alias=AliasChoices("TEACHER_API_KEY"))
    reward_model_url: str | None = Field(None, validation_alias=AliasChoices("REWARD_MODEL_URL"))


class EndpointSettings(BaseSettings):
    """An OpenAI-compatible model to ask instead of the embedded one (sqlagent_test.py)."""

    model_config = SettingsConfigDict(env_file=ENV_FILES, extra="ignore", populate_by_name=True)

    base_url: str | None = Field(None, validation_alias=AliasChoices("OPENAI_API_BASE", "OPENAI_BASE_URL"))
    api_key: SecretStr | None = Field(None, validation_alias=AliasChoices("OPENAI_API_KEY"))
    model: str | None = Field(None, validation_alias=AliasChoices("OPENAI_MODEL"))


class Settings(BaseSettings):
    """All settings of one run; `load_settings` builds it."""

    model_config = SettingsConfigDict(
        env_prefix="SQL_AGENT_", env_nested_delimiter="__", env_file=ENV_FILES, extra="ignore", validate_default=True
    )

    lang: Lang = "en"
    model: str = Field("", description="a Hugging Face folder or id; empty takes the embedded SmolLM2-135M-Instruct")
    backend: Literal["auto", "local", "verl"] = "auto"
    run_name: str = Field("", description="folder under `runs_dir`; empty makes one from the date")
    runs_dir: Path = RUNS
    seed: int = 0
    database: DatabaseSettings = DatabaseSettings()
    data: DataSettings = DataSettings()
    agent: AgentSettings = AgentSettings()
    judge: JudgeSettings = JudgeSettings()
    runner: RunnerSettings = RunnerSettings()
    train: TrainSettings = TrainSettings()
    sft: SftSettings = SftSettings()
    local: LocalSettings = LocalSettings()
    verl: VerlSettings = VerlSettings()

    def database_limits(self) -> Limits:
        """The limits of one query, as the database takes them."""
        return Limits(
            deadline_s=self.database.deadline_s, max_rows=self.database.max_rows, max_chars=self.database.max_chars
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, dotenv_settings, _TomlSource(settings_cls)


class _TomlSource(PydanticBaseSettingsSource):
    """The weakest source: the TOML file of this call to `load_settings`."""

    values: dict[str, Any] = {}  # noqa: RUF012  set by load_settings around the one construction

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self.values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self.values


def parse_overrides(overrides: Iterable[str]) -> dict[str, Any]:
    """Turn `["train.lr=1e-5", "lang=zh"]` into nested dicts of strings; pydantic converts them later.

    Raises ConfigError for an item without `=` or with an empty key.
    """
    result: dict[str, Any] = {}
    for item in overrides:
        key, equals, value = item.partition("=")
        if not equals or not all(key.split(".")):
            raise ConfigError(f"override {item!r} is not of the form section.key=value", hint="example: train.lr=1e-5")
        node = result
        *parents, last = key.split(".")
        for part in parents:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise ConfigError(f"override {item!r} contradicts an earlier one", hint="give each key once")
        node[last] = value
    return result


def load_settings(
    overrides: Iterable[str] = (),
    *,
    config_file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    defaults: Path | None = None,
) -> Settings:
    """Build the settings of a run.

    `overrides` are dotted (`train.lr=1e-5`), `flags` nested dicts from command-line flags; an override wins over a
    flag. `defaults` is a TOML file weaker than everything else. Raises ConfigError that names each bad key, its value
    and the reason.
    """
    weakest = _read_toml(defaults) if defaults else {}
    _TomlSource.values = _merge(weakest, _read_toml(config_file) if config_file else {})
    explicit = _merge(dict(flags or {}), parse_overrides(overrides))
    _refuse_unknown(explicit, "command line")
    _refuse_unknown(_TomlSource.values, str(config_file))
    try:
        return Settings(**explicit)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc']))}={e['input']!r}: {e['msg']}" for e in error.errors(include_url=False)
        )
        raise ConfigError(
            f"wrong setting: {problems}", hint="see sql_agent/config/settings.py for all settings"
        ) from None
    finally:
        _TomlSource.values = {}


def public_dump(settings: Settings) -> dict[str, Any]:
    """The resolved settings as JSON-able dicts. They hold no secret: keys live in TeacherSettings only."""
    return settings.model_dump(mode="json")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="check the path given with --config") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _merge(base: dict[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in top.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            base[key] = _merge(base[key], value)
        else:
            base[key] = value
    return base


def _refuse_unknown(values: Mapping[str, Any], where: str) -> None:
    unknown = sorted(set(values) - set(Settings.model_fields))
    if unknown:
        known = ", ".join(Settings.model_fields)
        raise ConfigError(f"unknown setting {', '.join(unknown)} ({where})", hint=f"known: {known}")
