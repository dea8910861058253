#!/usr/bin/env bash
# Create and start a container to train in, which stays until `docker rm -f NAME`; enter it with `docker exec -it NAME bash`.
#   docker/create_container.sh [--image sql-agent:gpu] [--name sql-agent] [--gpus all|none|INDEX] [--shm 32g]
#                              [--host-network] [--models FOLDER] [--env-file FILE] [--dry-run] [-- COMMAND…]
# runs/ and var/ of this checkout and the cache of Hugging Face are mounted, and --models at /models, read-only. Build the
# image with `--build-arg UID=$(id -u)`, so that its user can write them. --host-network is for Ray over several hosts.
set -euo pipefail
fail() { echo "error: $1" >&2; echo "  next: $2" >&2; exit 2; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
image=sql-agent:gpu name=sql-agent gpus=all shm=32g models="" env_file="" network=() dry="" command=(sleep infinity)
while [ $# -gt 0 ]; do
  case "$1" in
    --host-network) network=(--network host); shift; continue ;;
    --dry-run) dry=1; shift; continue ;;
    --help | -h) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --) shift; [ $# -eq 0 ] || command=("$@"); break ;;
  esac
  [ $# -gt 1 ] || fail "$1 is no option, or lacks its value" "$0 --help"
  case "$1" in
    --image) image=$2 ;; --name) name=$2 ;; --gpus) gpus=$2 ;; --shm) shm=$2 ;; --models) models=$2 ;; --env-file) env_file=$2 ;;
    *) fail "unknown option $1" "$0 --help" ;;
  esac
  shift 2
done
[[ $shm =~ ^[0-9]+[mg]$ ]] || fail "--shm $shm is no size" "--shm 32g"
[ -z "$models" ] || [ -d "$models" ] || fail "--models $models is no folder" "name the folder that holds the models"
[ -z "$env_file" ] || [ -f "$env_file" ] || fail "--env-file $env_file is not there" "cp env_template .env"

arguments=(run --detach --init --name "$name" --shm-size "$shm" --cap-drop ALL --security-opt no-new-privileges
  --ulimit nofile=65536:65536 --stop-timeout 120 "${network[@]}")
case "$gpus" in
  none) ;;
  all) arguments+=(--gpus all) ;;
  *[!0-9]* | "") fail "--gpus $gpus is neither all, none nor the index of a GPU" "--gpus 0" ;;
  *) arguments+=(--gpus "device=$gpus") ;;
esac
cache=${HF_HOME:-$HOME/.cache/huggingface}
arguments+=(--volume "$root/runs:/app/runs" --volume "$root/var:/app/var" --volume "$cache:/home/trainer/.cache/huggingface")
[ -z "$models" ] || arguments+=(--volume "$(cd "$models" && pwd):/models:ro")
[ -z "$env_file" ] || arguments+=(--env-file "$env_file")
arguments+=("$image" "${command[@]}")
if [ -n "$dry" ]; then printf '%q ' docker "${arguments[@]}"; echo; exit 0; fi

command -v docker >/dev/null || fail "docker is not installed" "install Docker Engine, and for GPUs the NVIDIA Container Toolkit"
user=$(docker image inspect --format '{{.Config.User}}' "$image" 2>/dev/null) ||
  fail "there is no image $image here" "docker build --target ${image##*:} --build-arg UID=\$(id -u) -t $image -f docker/Dockerfile ."
mkdir -p "$root/runs" "$root/var" "$cache"
if [ "$(id -u)" = 0 ]; then
  chown "$user" "$root/runs" "$root/var" "$cache"
elif [ "${user%%:*}" != "$(id -u)" ]; then
  fail "the user of $image is ${user%%:*}, and yours is $(id -u), so it could not write runs/" \
    "build it with --build-arg UID=$(id -u)"
fi
docker "${arguments[@]}"
echo "docker exec -it $name bash"
