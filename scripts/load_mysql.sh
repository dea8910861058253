#!/usr/bin/env bash
# Load the sample into a MySQL or MariaDB database, made if it is missing, and on demand make a user who may only read it:
#   scripts/load_mysql.sh mysql+pymysql://root:PASSWORD@127.0.0.1/medical --lang en --replace --reader reader
# `sql-agent data load --help` explains the options.
set -euo pipefail
[ $# -ge 1 ] && [ "${1#-}" = "$1" ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
url=$1; shift
PYTHONPATH=$(cd "$(dirname "$0")/.." && pwd)${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
exec "${PYTHON:-python}" -m sql_agent data load --db "$url" "$@"
