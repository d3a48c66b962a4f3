#!/bin/sh
# Makes .venv-gateway-GROUP with the packages of one group of clients, drives them against a scripted policy, and prints the
# table of docs/gateway.md. The groups differ in what they pin; nothing of Turnwise is installed beside them.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
TURNWISE=${TURNWISE:-.venv/bin/python}
for group in ${GROUPS_OF_CLIENTS:-main litellm autogen strands}; do
  venv=.venv-gateway-$group
  [ -x "$venv/bin/python" ] || "$PYTHON" -m venv "$venv"
  echo '*' > "$venv/.gitignore"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "clients/$group.txt"
done
"$TURNWISE" benchmarks/gateway_clients.py ${GROUPS_OF_CLIENTS:-}
