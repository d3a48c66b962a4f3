#!/bin/sh
# Builds a wheel of every package into dist/, installs them in an empty virtual environment outside the checkout, and there
# lists the recipes and trains two of them for one step by their short names.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
checkout=$PWD
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
rm -rf dist
for package in packages/turnwise-sandbox . packages/turnwise-swe packages/turnwise-worlds packages/turnwise-adapters packages/turnwise-rewards \
    packages/turnwise-synthesis; do
  "$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist "$package"
done
"$PYTHON" -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
"$place/venv/bin/python" -m pip check
cd "$place"
unset PYTHONPATH
short="sft.steps=4 sft.num_demonstrations=64 sft.batch_size=16 train.steps=1 rollout.tasks_per_step=2 rollout.group_size=4
  tokenizer.num_texts=150 train.num_threads=1 evaluate.tasks=4 evaluate.controls={}"
venv/bin/python -c 'import turnwise, turnwise_sandbox; print(turnwise.__file__, turnwise_sandbox.__file__)'
venv/bin/turnwise recipes
# shellcheck disable=SC2086 # options apart
venv/bin/turnwise train search_r1/tiny $short
# shellcheck disable=SC2086
venv/bin/turnwise train games/nim $short
venv/bin/turnwise recipes copy mcp/tiny
ls "$checkout/dist"
