#!/usr/bin/env bash
# Copy the sample to a MySQL or MariaDB database, which is made if it is missing; --reader makes a user who may only read it:
#   export ADMIN_URL='mysql+pymysql://root:PASSWORD@127.0.0.1/medical'
#   scripts/load_mysql.sh env:ADMIN_URL --lang en --replace --reader reader
# A password belongs in the variable, because every user of this machine can list the arguments of its processes.
# `sql-agent data load --help` explains the options.
set -euo pipefail
[ $# -ge 1 ] && [ "${1#-}" = "$1" ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
url=$1; shift
PYTHONPATH=$(cd "$(dirname "$0")/.." && pwd)${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
exec "${PYTHON:-python}" -m sql_agent data load --db "$url" "$@"
