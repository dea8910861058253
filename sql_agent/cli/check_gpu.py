"""Check what the backend verl needs on a GPU."""

from __future__ import annotations

import importlib
import shutil
import subprocess

from sql_agent.cli.check_line import Check, installed

GPU_INSTALL = "uv sync --extra gpu"


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

    from sql_agent.training.verl.attention import packed_attention

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
