#!/usr/bin/env bash
# Lint, types and tests in an environment of their own. No GPU, no API key, no network but the package registry.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
cd "$root"
make_environment "[dev]"
ruff check .
ruff format --check .
mypy
python -m pytest -n 2 --dist loadfile "$@"
