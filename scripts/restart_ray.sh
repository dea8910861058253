#!/usr/bin/env bash
# (Re)start Ray on this host, for training on several:
#   on the first host:   scripts/restart_ray.sh head [PORT]
#   on each other host:  scripts/restart_ray.sh worker HEAD_ADDRESS[:PORT]
# Then, on the first host: RAY_ADDRESS=auto python sql_agent/train_sql_agent.py --nnodes N verl.host=HEAD_ADDRESS ...
# Environment variables are inherited by everything that Ray starts: set HF_HOME and the like before.
set -euo pipefail
usage() { sed -n '2,6p' "$0" | cut -c3- >&2; exit 2; }
command -v ray >/dev/null || { echo "error: Ray is not installed here" >&2; echo "  next: uv sync --extra gpu" >&2; exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" VERL_USE_EXTERNAL_MODULES=sql_agent.backends.verl.plugin
export RAY_task_events_max_num_task_in_gcs=10000  # 3 KB each; Ray's own 100,000 fill in a quarter of an hour
case "${1:-}" in
  head)   ray stop; ray start --head --port "${2:-6379}" --disable-usage-stats ;;
  worker) [ -n "${2:-}" ] || usage
          case "$2" in *:*) address=$2 ;; *) address=$2:6379 ;; esac
          ray stop; ray start --address "$address" --disable-usage-stats ;;
  *)      usage ;;
esac
