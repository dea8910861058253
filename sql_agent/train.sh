#!/usr/bin/env bash
# Train with the arguments given, from any folder: bash sql_agent/train.sh --ci
set -euo pipefail
exec python "$(dirname "$0")/train_sql_agent.py" "$@"
