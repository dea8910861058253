"""Know which versions of driver, CUDA, torch, vLLM, verl and flash-attn do not go together, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

_INSTALL = "uv sync --extra gpu installs the versions that go together, in a new environment"
# The least driver of a CUDA major version on Linux, by NVIDIA's table of minor version compatibility.
_LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
# What the packages pin themselves; pip can leave others behind.
_PINS = {
    "verl": ("0.9.", {"vllm": "0.24.", "torch": "2.11."}),
    "vllm": ("0.24.", {"torch": "2.11.", "transformers": "5.9."}),
}


def bad_combinations(versions: Mapping[str, str], *, cuda: str | None, driver: str | None) -> list[tuple[str, str]]:
    """Return each pair of versions that does not work together, with what to do.

    `versions` are those of the installed packages, `cuda` that of torch's build (None for a CPU build), and `driver`
    that of the NVIDIA driver (None where there is none).
    """
    found = []
    if driver and cuda is None and "torch" in versions:
        found.append((f"torch {versions['torch']} is a CPU build, and this host has a GPU", _INSTALL))
    least = _LEAST_DRIVER.get(int(cuda.partition(".")[0])) if cuda else None
    if driver and least and int(driver.partition(".")[0]) < least:
        advice = f"install driver {least} or newer, or a torch that is built for an older CUDA"
        found.append((f"driver {driver} is too old for CUDA {cuda}, which needs {least}", advice))
    for package, (version, pins) in _PINS.items():
        if not versions.get(package, "").startswith(version):
            continue
        found += [
            (f"{package} {versions[package]} needs {name} {wanted}*, and {versions[name]} is installed", _INSTALL)
            for name, wanted in pins.items()
            if name in versions and not versions[name].startswith(wanted)
        ]
    return found


def flash_attention_problem(error: ImportError) -> tuple[str, str]:
    """Return what an installed flash-attn that cannot be imported means, and what to do."""
    reason = str(error).splitlines()[0]
    built = "it was built for another torch: " if "undefined symbol" in reason else ""
    advice = "pip uninstall flash-attn; training goes on without it"
    return f"flash-attn cannot be imported: {built}{reason}", advice
