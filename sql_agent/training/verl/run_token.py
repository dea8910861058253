"""Hand verl's processes the bearer token of a run: in the environment, which no other user of a host can read."""

from __future__ import annotations

import os

VARIABLE = "SQLAGENT_RUN_TOKEN"  # without the prefix of settings, because it is none
VLLM_VARIABLE = "VLLM_API_KEY"  # of the server that verl starts for each replica


def token_environment(token: str) -> dict[str, str]:
    """Return the environment variables by which verl's processes, and vLLM's own server, get `token`."""
    return {VARIABLE: token, VLLM_VARIABLE: token}


def run_token() -> str:
    """Return the token that this process of verl was started with."""
    return os.environ[VARIABLE]
