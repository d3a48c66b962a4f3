#!/bin/sh
# Makes .venv-adapters-GROUP with the packages of one group of adapters and runs their tests there, where a missing package
# is a failure. One environment cannot hold all: OpenEnv and verifiers pin different releases of mcp.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
for group in ${GROUPS_OF_ADAPTERS:-a verifiers openenv}; do
  venv=.venv-adapters-$group
  [ -x "$venv/bin/python" ] || "$PYTHON" -m venv "$venv"
  echo '*' > "$venv/.gitignore"
  case $group in
    a) extras=dev,gymnasium,minigrid,textworld,open-spiel,pettingzoo ;;
    verifiers) extras=dev,verifiers ;;
    openenv) extras=dev,openenv ;;
    *) echo "unknown group $group: use a, verifiers, openenv" >&2; exit 2 ;;
  esac
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "adapters/$group.txt" -e ".[$extras]"
  TURNWISE_ADAPTERS=$group OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest tests/unit/environments/adapters
done
