#!/usr/bin/env bash
# Run linter, type checker and tests in the virtual environment .venv: scripts/test.sh [--fast] [PYTEST ARGUMENTS]
# --fast leaves out the tests marked slow. Needs no GPU, no API key, and no network except for the package registry.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
cd "$root"
# Keep compiled Python files, because the tests start some hundred processes.
export PYTHONDONTWRITEBYTECODE=
if [ "${1:-}" = --fast ]; then
  shift
  set -- -m "not slow" "$@"
fi
make_environment "[dev,tracking]"
ruff check .
ruff format --check .
# mypy runs beside the tests, which often wait and leave a core free.
types=$(mktemp)
mypy >"$types" 2>&1 &
checker=$!
trap 'kill $checker 2>/dev/null || true; rm -f "$types"' EXIT
# Distributed by file, because the tests of a file share fixtures; tests/conftest.py puts the slow files first.
passed=0
python -m pytest -n 2 --dist loadfile --no-loadscope-reorder "$@" || passed=$?
wait $checker || passed=$?
cat "$types"
exit $passed
