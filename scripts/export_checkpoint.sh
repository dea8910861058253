#!/usr/bin/env bash
# Write a checkpoint of a run as a Hugging Face folder: scripts/export_checkpoint.sh RUN OUT [--step N]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" -m sql_agent export "$@"
