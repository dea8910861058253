#!/usr/bin/env bash
# Run the linter, the type checker and the tests in an environment of their own. Needs no GPU, no API key, and no network
# except for the package registry.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
cd "$root"
make_environment "[dev]"
ruff check .
ruff format --check .
mypy
python -m pytest -n 2 --dist loadfile "$@"
