"""Settings: where they come from, which source wins, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from sql_agent.cli.command import run_command
from sql_agent.config.endpoints import EndpointSettings, EnvironmentSettings, TeacherSettings, TokenSettings
from sql_agent.config.settings import FIELDS, SECTIONS, Settings, as_text, load_settings
from sql_agent.errors import ConfigError

EXAMPLES = {  # where the default is none or empty, so that a value is given too
    "model": "models/qwen",
    "run_name": "night",
    "database.path": Path("medical.db"),
    "data.train_file": Path("train.parquet"),
    "data.val_file": Path("val.jsonl"),
    "judge.rubric": Path("rubric.toml"),
    "judge.reward_model_range": (-2.5, 1e5),
    "judge.requests_per_minute": 90.5,
    "judge.tokens_per_minute": 1e6,
}
NUMBERS = [
    name
    for name, field in FIELDS.items()
    if isinstance(field.default, float) or name in {"judge.requests_per_minute", "judge.tokens_per_minute"}
]


def value_of(settings: Settings, name: str) -> Any:
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def variable(name: str) -> str:
    return "SQL_AGENT_" + name.upper().replace(".", "__")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, whose .env and environment hold no setting."""
    for name in [name for name in os.environ if name.startswith("SQL_AGENT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("sql_agent.config.settings.ENV_FILES", (Path(".env"),))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_every_setting_says_what_it_means() -> None:
    variables = [*TeacherSettings.model_fields.items(), *EndpointSettings.model_fields.items()]
    bare = [name for name, field in [*FIELDS.items(), *variables] if not (field.description or "").strip()]
    assert not bare, f"describe with unit, and what 0, empty or none means: {', '.join(bare)}"


def test_every_section_says_what_it_is_about() -> None:
    assert all((section.__doc__ or "").strip() for section in (Settings, *SECTIONS.values()))


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - {"verl.config"}))
@pytest.mark.parametrize("source", ["command line", "environment", ".env"])
def test_every_setting_can_be_given_as_text(
    name: str, source: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    default = FIELDS[name].get_default(call_default_factory=True)
    for value in (EXAMPLES.get(name, default), default):
        overrides: list[str] = []
        text = str(value) if isinstance(value, Path) else as_text(value)
        if source == "command line":
            overrides = [f"{name}={text}"]
        elif source == "environment":
            monkeypatch.setenv(variable(name), text)
        else:
            written(folder / ".env", f"{variable(name)}={text}\n")
        assert value_of(load_settings(overrides), name) == value


@pytest.mark.parametrize("text", ["0,10", "[0,10]", "[0, 10]", " 0 , 10.0 "])
def test_a_range_is_two_numbers_with_or_without_brackets(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings([f"judge.reward_model_range={text}"]).judge.reward_model_range == (0.0, 10.0)
    monkeypatch.setenv("SQL_AGENT_JUDGE__REWARD_MODEL_RANGE", text)
    assert load_settings().judge.reward_model_range == (0.0, 10.0)


@pytest.mark.parametrize("text", ["1", "0,1,2", "0,ten", "1,0", "1,1", "0,inf", "nan,1"])
def test_a_range_that_does_not_rise_between_two_numbers_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"judge\.reward_model_range="):
        load_settings([f"judge.reward_model_range={text}"])


@pytest.mark.parametrize("text", ["none", "None", ""])
def test_none_undoes_what_a_weaker_source_gave(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = written(folder / "run.toml", "[judge]\nrequests_per_minute = 60\ntokens_per_minute = 900\n")
    settings = load_settings(
        [f"judge.requests_per_minute={text}", f"judge.tokens_per_minute={text}"], config_file=config
    )
    assert (settings.judge.requests_per_minute, settings.judge.tokens_per_minute) == (None, None)
    monkeypatch.setenv("SQL_AGENT_JUDGE__REQUESTS_PER_MINUTE", text)
    assert load_settings(config_file=config).judge.requests_per_minute is None


def test_stronger_sources_win_key_by_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weakest = written(folder / "weakest.toml", "lang='zh'\n[train]\nsteps=1\nlr=1\n")
    config = written(folder / "run.toml", "[train]\nsteps=2\nlr=2\ngroup_size=2\nclip_low=0.5\nclip_high=2\n")
    written(folder / ".env", "SQL_AGENT_TRAIN__STEPS=3\nSQL_AGENT_TRAIN__GROUP_SIZE=3\nSQL_AGENT_TRAIN__KL_COEF=3\n")
    monkeypatch.setenv("SQL_AGENT_TRAIN__STEPS", "4")
    monkeypatch.setenv("SQL_AGENT_TRAIN__KL_COEF", "4")
    monkeypatch.setenv("SQL_AGENT_TRAIN__CLIP_HIGH", "4")
    settings = load_settings(
        ["train.steps=6"],
        config_file=config,
        flags={"train": {"steps": 5, "clip_high": 5}},
        defaults=[weakest],
    )
    train = settings.train
    assert (train.steps, train.clip_high, train.kl_coef, train.group_size) == (6, 5, 4, 3)
    assert (train.clip_low, train.lr, settings.lang, train.save_every) == (0.5, 2, "zh", 5)


def test_the_keys_below_verl_config_are_left_to_verl_and_laid_over_each_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = written(folder / "run.toml", "[verl.config.trainer]\ntotal_epochs = 3\nlogger = ['file']\n")
    monkeypatch.setenv("SQL_AGENT_VERL__CONFIG__TRAINER__TOTAL_EPOCHS", "4")
    settings = load_settings(["verl.config.actor.no_such_key=1"], config_file=config)
    assert settings.verl.config == {"trainer": {"total_epochs": "4", "logger": ["file"]}, "actor": {"no_such_key": "1"}}


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "Infinity", "1e999"])
@pytest.mark.parametrize("name", NUMBERS)
def test_infinities_and_nan_are_no_numbers(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}='{value}'"):
        load_settings([f"{name}={value}"])


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_infinities_and_nan_are_refused_in_toml_too(value: str, folder: Path) -> None:
    config = written(folder / "run.toml", f"[database]\ndeadline_s = {value}\n")
    with pytest.raises(ConfigError, match=r"database\.deadline_s=.*run\.toml.*finite"):
        load_settings(config_file=config)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("trian.lr", "train.lr"),
        ("train.stesp", "train.steps"),
        ("train_lr", "train.lr"),
        ("lr", "train.lr"),
        ("train.n_runners", "runner.n_runners"),
        ("train.lr.x", "train.lr"),
        ("judge.nmae", "judge.name"),
        ("verl.confg.trainer", "verl.config"),
        ("sede", "seed"),
    ],
)
def test_a_wrong_key_names_the_nearest_right_one(wrong: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings([f"{wrong}=1"])
    assert raised.value.message == f"unknown setting {wrong} (command line)"
    assert nearest in (raised.value.hint or "").partition("?")[0]


def test_where_no_key_is_near_the_hint_lists_those_of_the_section() -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(["train.learnig_rate=1"])
    assert raised.value.message == "unknown setting train.learnig_rate (command line)"
    assert "lr" in (raised.value.hint or "")
    assert "`sql-agent settings train`" in (raised.value.hint or "")


def test_a_section_is_not_taken_for_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQL_AGENT_TRAIN", "3")
    with pytest.raises(ConfigError, match=r"SQL_AGENT_TRAIN is a section.*SQL_AGENT_TRAIN__STEPS"):
        load_settings()


def test_an_empty_table_in_a_file_is_checked_by_its_name(folder: Path) -> None:
    assert load_settings(config_file=written(folder / "right.toml", "[train]\n")).train.steps == 20
    with pytest.raises(ConfigError, match=r"unknown setting trian \(.*wrong\.toml\)"):
        load_settings(config_file=written(folder / "wrong.toml", "[trian]\n"))


def test_a_wrong_value_is_told_with_its_place_and_section(folder: Path) -> None:
    written(folder / ".env", "SQL_AGENT_TRAIN__LR=fast\n")
    with pytest.raises(ConfigError) as raised:
        load_settings()
    assert raised.value.message.startswith("wrong setting: SQL_AGENT_TRAIN__LR='fast' (.env): ")
    assert raised.value.hint == "see `sql-agent settings train`"


def test_a_secret_under_a_wrong_name_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQL_AGENT_TEACHER_API_KEY", "sk-very-secret")
    with pytest.raises(ConfigError) as raised:
        load_settings(["TEACHER_API_KEY=sk-very-secret"])
    assert "sk-very-secret" not in str(raised.value)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[train\n"])
def test_a_file_that_is_no_toml_is_named(content: bytes, folder: Path) -> None:
    (folder / "run.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"run\.toml is not valid TOML"):
        load_settings(config_file=folder / "run.toml")


@pytest.mark.parametrize("settings", EnvironmentSettings.__subclasses__())
def test_variables_with_the_names_of_fields_are_other_programs(
    settings: type[EnvironmentSettings], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = settings()
    others = {name.upper() for name in settings.model_fields} - {"REWARD_MODEL_URL"}  # which is the variable, too
    for name in others:
        monkeypatch.setenv(name, "http://of-another-program")
    (folder / ".env").write_text("".join(f"{name}=http://of-a-stranger\n" for name in others))
    assert settings() == plain
    name = next(iter(settings.model_fields))
    assert getattr(settings(**{name: "given"}), name) in ("given", SecretStr("given"))


def test_a_dotenv_that_is_no_text_is_named(folder: Path) -> None:
    (folder / ".env").write_bytes(b"\xff\xfe=1\n")
    with pytest.raises(ConfigError, match=r"cannot read \.env"):
        load_settings()


@pytest.mark.parametrize("source", ["command line", "environment", ".env", "run.toml"])
def test_the_command_refuses_a_misspelled_setting_wherever_it_stands(
    source: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = []
    if source == "command line":
        arguments = ["trian.lr=1"]
    elif source == "environment":
        monkeypatch.setenv("SQL_AGENT_TRIAN__LR", "1")
    elif source == ".env":
        written(folder / ".env", "SQL_AGENT_TRIAN__LR=1\n")
    else:
        arguments = ["--config", str(written(folder / "run.toml", "[trian]\nlr = 1\n"))]
    assert run_command("train", arguments) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: unknown setting ")
    assert error.endswith(f"{source})")
    right = "SQL_AGENT_TRAIN__LR" if source in {"environment", ".env"} else "train.lr"
    assert hint.startswith(f"  next: did you mean {right}?")


def test_an_empty_variable_is_one_that_is_not_set_and_hides_that_of_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("MCP_TOKEN=from-the-file\nOPENAI_API_BASE=http://127.0.0.1:1/v1\n", encoding="utf-8")
    monkeypatch.setenv("MCP_TOKEN", "")
    monkeypatch.setenv("OPENAI_API_BASE", "")
    assert TokenSettings().mcp is None
    assert EndpointSettings().base_url is None
    monkeypatch.delenv("MCP_TOKEN")
    token = TokenSettings().mcp
    assert token is not None and token.get_secret_value() == "from-the-file"


@pytest.mark.parametrize("name", ["../../x", "..", ".", "/tmp/x", "a/b", "a/", "a\nb", " ", "a\udc80"])
def test_a_run_s_name_is_the_plain_name_of_one_folder(name: str) -> None:
    with pytest.raises(ConfigError, match="must be the name of a folder without a path") as refused:
        load_settings([f"run_name={name}"])
    assert "run_name=" in refused.value.message and "runs_dir" in refused.value.message


@pytest.mark.parametrize("name", ["night-1", "试验 2", "a..b", ".hidden"])
def test_other_names_of_runs_are_taken_as_they_are(name: str) -> None:
    assert load_settings([f"run_name={name}"]).run_name == name


@pytest.mark.parametrize(
    "override",
    ["train.group_size=99999999999", "train.questions_per_step=100000000000", "sft.batch=99999999999999999999",
     "agent.request_timeout_s=1e300", "database.deadline_s=1e300",
     "agent.request_timeout_s=1e300"],
)  # fmt: skip
def test_a_number_that_no_machine_could_hold_or_wait_for_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="less than or equal to"):
        load_settings([override])


@pytest.mark.parametrize("seed", ["-1", "2147483648", "99999999999999999999999"])
def test_a_seed_that_not_all_generators_take_is_refused(seed: str) -> None:
    with pytest.raises(ConfigError, match=f"seed='{seed}'"):
        load_settings([f"seed={seed}"])
