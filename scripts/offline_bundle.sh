#!/usr/bin/env bash
# Bundle the project's packages and a model for a host without a network.
#   with a network:     scripts/offline_bundle.sh pack OUT [--model FOLDER] [--exclude REGEX] [--requirements FILE]
#                                                          [--part-mb 1000]
#   on the other host:  bash OUT/offline_bundle.sh unpack OUT TARGET
# `pack` bundles the GPU packages of uv.lock, or those of --requirements, for the version of python3, which must be that
# of the other host (PYTHON=... names another). --exclude leaves out packages that the host has, such as
# 'torch|nvidia-.*|triton'. The parts can be copied one by one. `unpack` verifies their checksums, needs only bash, tar
# and coreutils, and prints the line to put into the shell profile.
set -euo pipefail
fail() { echo "error: $1" >&2; [ -z "${2:-}" ] || echo "  next: $2" >&2; exit 2; }

pack() {
  local out=${1:-} model="" exclude="" requirements="" part_mb=1000 root
  [ -n "$out" ] || fail "no folder named to pack into" "scripts/offline_bundle.sh pack OUT"
  shift
  while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || fail "$1 needs a value" "see the head of $0"
    case "$1" in
      --model) model=$2 ;; --exclude) exclude=$2 ;; --requirements) requirements=$2 ;;
      --part-mb) part_mb=$2 ;;
      *) fail "unknown option $1" "see the head of $0" ;;
    esac
    shift 2
  done
  command -v zstd >/dev/null || fail "zstd is not installed" "apt-get install zstd"
  [ -z "$model" ] || [ -f "$model/config.json" ] || fail "$model is not a Hugging Face folder" "name a folder with config.json"
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  [ ! -e "$out/SHA256SUMS" ] || fail "$out contains a bundle already" "name another folder"
  mkdir -p "$out"
  work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
  if [ -n "$requirements" ]; then
    cp "$requirements" "$work/requirements.txt"
  else
    command -v uv >/dev/null || fail "uv is not installed" "pip install uv, or name a list with --requirements"
    uv export --quiet --project "$root" --frozen --extra gpu --no-emit-project --no-hashes --output-file "$work/requirements.txt"
  fi
  if [ -n "$exclude" ]; then
    grep -viE "^($exclude)([ =<>;]|$)" "$work/requirements.txt" >"$work/kept.txt" && mv "$work/kept.txt" "$work/requirements.txt"
  fi
  "${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check --no-compile --no-deps \
    --target "$work/site" --requirement "$work/requirements.txt"
  parts site "$work/site" "$out" "$part_mb"
  [ -z "$model" ] || parts model "$model" "$out" "$part_mb"
  cp "$(command -v zstd)" "${BASH_SOURCE[0]}" "$out/"
  (cd "$out" && sha256sum -- *.part.* zstd offline_bundle.sh >SHA256SUMS)
  du -sh "$out"
}

parts() {  # NAME FOLDER OUT MB
  tar -C "$2" -c . | zstd --quiet -T0 --long=27 | split --bytes "$4M" --numeric-suffixes --suffix-length 3 - "$3/$1.part."
}

unpack() {
  local from=${1:-} target=${2:-} name
  [ -d "$from" ] && [ -n "$target" ] || fail "two folders are needed" "offline_bundle.sh unpack OUT TARGET"
  [ -f "$from/SHA256SUMS" ] || fail "$from has no SHA256SUMS" "copy the whole folder"
  (cd "$from" && sha256sum --check --quiet SHA256SUMS) || fail "a part is missing or damaged, see above" "copy it again"
  chmod +x "$from/zstd"
  for name in site model; do
    [ -f "$from/$name.part.000" ] || continue
    mkdir -p "$target/$name"
    cat "$from/$name".part.* | "$from/zstd" --quiet --decompress --long=27 | tar -x -C "$target/$name"
  done
  target=$(cd "$target" && pwd)
  echo "export PYTHONPATH=$target/site HF_HUB_OFFLINE=1   # model: $target/model"
}

case "${1:-}" in
  pack) shift; pack "$@" ;;
  unpack) shift; unpack "$@" ;;
  *) sed -n '2,10p' "$0" | cut -c3- >&2; exit 2 ;;
esac
