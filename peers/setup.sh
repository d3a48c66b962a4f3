#!/bin/sh
# Makes .venv-peers: the public implementations that Turnwise's algorithms are compared with. Nothing of Turnwise needs it.
# The peers are installed without their declared dependencies: only the pure tensor functions are called, never an engine.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
[ -x .venv-peers/bin/python ] || "$PYTHON" -m venv .venv-peers
echo '*' > .venv-peers/.gitignore
PIP=".venv-peers/bin/python -m pip install --quiet --disable-pip-version-check"
$PIP -c peers/requirements.txt torch  # with what its build needs: a CPU build nothing, others their libraries
$PIP --no-deps -r peers/requirements.txt
