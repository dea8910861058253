#!/usr/bin/env bash
# Start or restart Ray on this host, for training on several hosts:
#   on the first host:   scripts/restart_ray.sh head [PORT]
#   on each other host:  scripts/restart_ray.sh worker HEAD_ADDRESS[:PORT]
# Then, on the first host: RAY_ADDRESS=auto python sql_agent/train_sql_agent.py --nnodes N verl.host=HEAD_ADDRESS ...
# Set environment variables such as HF_HOME before: all processes that Ray starts inherit them.
# The head refuses hosts without its token: copy its ~/.ray/auth_token to the other hosts first.
set -euo pipefail
usage() { sed -n '2,7p' "$0" | cut -c3- >&2; exit 2; }
refuse() { echo "error: $1" >&2; echo "  next: $2" >&2; exit 2; }
taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
[ $# -gt 0 ] || usage
command -v ray >/dev/null || refuse "Ray is not installed here" "uv sync --extra gpu"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" VERL_USE_EXTERNAL_MODULES=sql_agent.training.verl.plugin
export RAY_AUTH_MODE=token
# 3 KB each: the 100,000 of Ray's default are reached after a quarter of an hour.
export RAY_task_events_max_num_task_in_gcs=10000
case "$1" in
  head)   port=${2:-6379}
          ray stop >/dev/null
          ! taken "$port" || refuse "port $port of this host is taken" "scripts/restart_ray.sh head ANOTHER_PORT"
          ray get-auth-token --generate >/dev/null
          ray start --head --port "$port" --include-dashboard false --disable-usage-stats
          echo "Next, with this host's address in place of HEAD_ADDRESS, on each other host that has ~/.ray/auth_token:"
          echo "  scripts/restart_ray.sh worker HEAD_ADDRESS:$port"
          echo "Then here, for N hosts in all:"
          echo "  RAY_ADDRESS=auto python sql_agent/train_sql_agent.py --nnodes N verl.host=HEAD_ADDRESS ..." ;;
  worker) [ -n "${2:-}" ] || usage
          case "$2" in *:*) address=$2 ;; *) address=$2:6379 ;; esac
          ray get-auth-token >/dev/null 2>&1 || refuse "this host has no token" "copy ~/.ray/auth_token from the head"
          ray stop >/dev/null
          ray start --address "$address" --disable-usage-stats ;;
  *)      usage ;;
esac
