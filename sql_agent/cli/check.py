"""Check this installation, one line a check: sql-agent check [--gpu] [--online]"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict

from sql_agent.cli.check_gpu import (
    GPU_INSTALL,
    check_cuda,
    check_flash_attention,
    check_gpu_stack,
    check_packed_attention,
)
from sql_agent.cli.check_line import Check, check_package
from sql_agent.cli.check_parts import (
    BASE_INSTALL,
    check_database,
    check_disk,
    check_judge,
    check_memory,
    check_model,
    check_open_files,
    check_opentelemetry,
    check_python,
    check_store,
    check_torch,
)
from sql_agent.cli.parser import help_text
from sql_agent.system.imports import lasting_interrupts

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


def run(name: str, check: Callable[[], Check]) -> Check:
    """Run one check; an exception becomes a failed check, so that the others still run."""
    try:
        with lasting_interrupts():  # each imports what it checks
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
