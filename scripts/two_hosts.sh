#!/usr/bin/env bash
# Train with store and algorithm on one host and runners on another, while the network between them fails for 10 s:
#   bash scripts/two_hosts.sh
# The hosts are two network namespaces of this machine, joined by two virtual cards and without any other network. Needs
# root and the environment of scripts/test.sh; where namespaces are not permitted, it says so and exits with 0.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -n "${VIRTUAL_ENV:-}" ] || . "${VENV:-.venv}/bin/activate"
export LITELLM_LOCAL_MODEL_COST_MAP=True OPENAI_AGENTS_DISABLE_TRACING=1 TOKENIZERS_PARALLELISM=false

here=sqlagent-$$-a there=sqlagent-$$-b store=10.213.77.1 runner=10.213.77.2
if ! { [ "$(id -u)" = 0 ] && command -v ip && ip netns add $here && ip netns add $there; } >/dev/null 2>&1; then
  ip netns del $here 2>/dev/null || true
  echo "two_hosts.sh: skipped, because network namespaces are not permitted here"
  exit 0
fi
folder=$(mktemp -d)
pids=()
finish() {
  [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
  wait
  ip netns del $here
  ip netns del $there
  rm -rf "$folder"
}
trap finish EXIT
ip link add veth-a netns $here type veth peer name veth-b netns $there
for host in "$here veth-a $store" "$there veth-b $runner"; do
  read -r name card address <<<"$host"
  ip -n "$name" address add "$address/24" dev "$card"
  ip -n "$name" link set "$card" up
  ip -n "$name" link set lo up
done

arguments=$(python - "$folder" <<'PYTHON'
import sys
from pathlib import Path
from tests.support.tiny_model import make_tiny_model
from tests.support.tiny_training import tiny_training

folder = Path(sys.argv[1])
print("\n".join(tiny_training(folder, make_tiny_model(folder / "model"))))
PYTHON
)
mapfile -t run <<<"$arguments"
export AGL_MANAGED_STORE=0 SQL_AGENT_DATA__NATURAL_QUESTIONS=0
shared=(python sql_agent/train_sql_agent.py --external-store-address "http://$store:4747")
STORE_TOKEN=$(python -c "import secrets; print(secrets.token_urlsafe(24))")
export STORE_TOKEN
ip netns exec $here sql-agent store --host $store --port 4747 >"$folder/store.log" 2>&1 & pids+=($!)
for _ in $(seq 240); do
  ip netns exec $here bash -c "exec 3<>/dev/tcp/$store/4747" 2>/dev/null && break
  sleep 0.5
done
AGL_CURRENT_ROLE=runner ip netns exec $there "${shared[@]}" --n-runners 1 >"$folder/runner.log" 2>&1 & runners=$!
pids+=($runners)
AGL_CURRENT_ROLE=algorithm ip netns exec $here "${shared[@]}" "${run[@]}" --ci-fast train.steps=6 \
  >"$folder/algorithm.log" 2>&1 &
algorithm=$!
pids+=($algorithm)

fail() {
  echo "two_hosts.sh: $1"
  tail -n 20 "$folder"/*.log
  exit 1
}
# The network fails between two steps or within one; the runner's rollouts are run again.
until grep --quiet --no-messages "Step 1/6" "$folder/algorithm.log" || ! kill -0 $algorithm 2>/dev/null; do sleep 0.05; done
ip -n $here link set veth-a down
sleep 10
ip -n $here link set veth-a up
# Until the run ends, record each port on which a process listens on every interface.
while kill -0 $algorithm 2>/dev/null; do
  for host in $here $there; do
    ip netns exec $host cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == "0A" && $2 ~ /^0+:/ { print $2 }' >>"$folder/open"
  done
  sleep 0.5
done
wait $algorithm || fail "the algorithm failed"
wait $runners || fail "the runner failed"
grep --quiet "gave no sign of life" "$folder/algorithm.log" || fail "the algorithm did not say that the runner was gone"
grep --quiet "this runner waits for it" "$folder/runner.log" || fail "the runner did not say that the store was gone"
[ ! -s "$folder/open" ] || fail "a process listens on every interface: $(sort -u "$folder/open" | tr '\n' ' ')"
# The policy's URL in the store must be one that the other host can reach.
ip netns exec $there python - "http://$store:4747" "http://$store:" <<'PYTHON' || fail "the store answers without its token, or hands over a loopback address"
import json, os, sys, urllib.error, urllib.request

address = f"{sys.argv[1]}/v1/agl/resources/latest"
try:
    urllib.request.urlopen(address, timeout=10)
    sys.exit("the store answers without its token")
except urllib.error.HTTPError as error:
    if error.code != 401:
        raise
asked = urllib.request.Request(address, headers={"Authorization": f"Bearer {os.environ['STORE_TOKEN']}"})
with urllib.request.urlopen(asked, timeout=10) as reply:
    endpoint = json.load(reply)["resources"]["main_llm"]["endpoint"]
sys.exit(0 if endpoint.startswith(sys.argv[2]) else f"the policy's address is {endpoint}")
PYTHON
[ "$(grep -c '"rollouts/kept": 4' "$folder/runs/r/metrics.jsonl")" = 6 ] || fail "not every rollout was kept"
grep -q "^train " "$folder/runner.log" || fail "the runner's terminal shows no rollout"
echo "two_hosts.sh: 24 of 24 rollouts ran on $runner, with store (and its token) and algorithm on $store, and the network failed for 10 s"
