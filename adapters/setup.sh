#!/bin/sh
# Makes .venv-adapters-GROUP with the packages of one group of adapters and runs their tests there, where a missing package
# is a failure. One environment cannot hold all: OpenEnv and verifiers pin different releases of mcp. torch is the release of
# constraints.txt, so that a CPU build is taken where pip finds one: four of a build with CUDA are 20 GB.
set -eu
cd "$(dirname "$0")/.."
torch=$(grep '^torch==' constraints.txt)
PYTHON=${PYTHON:-python3}
# Our own packages come from this checkout, since no index has them.
own=
for folder in packages/*/; do own="$own -e $folder"; done
for group in ${GROUPS_OF_ADAPTERS:-a verifiers openenv trl worlds}; do
  venv=.venv-adapters-$group
  [ -x "$venv/bin/python" ] || "$PYTHON" -m venv "$venv"
  echo '*' > "$venv/.gitignore"
  packages=
  case $group in
    a) extras=dev,gymnasium,minigrid,textworld,open-spiel,pettingzoo ;;
    verifiers) extras=dev,verifiers ;;
    openenv) extras=dev,openenv ;;
    worlds) extras=dev,alfworld,crafter,scienceworld ;;
    trl) extras=dev packages='trl datasets accelerate jmespath' ;;
    *) echo "unknown group $group: use a, verifiers, openenv, trl, worlds" >&2; exit 2 ;;
  esac
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "adapters/$group.txt" \
    "$torch" -e ".[$extras]" $own $packages
  TURNWISE_ADAPTERS=$group OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest packages/turnwise-adapters/tests/adapters
done
