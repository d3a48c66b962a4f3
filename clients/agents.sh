#!/bin/sh
# Installs command-line agents into a folder: `sh clients/agents.sh FOLDER`. No script of a package runs; the agents are
# started by `benchmarks/gateway_agents.py --clients FOLDER`, in a network namespace.
set -eu
mkdir -p "$1"
cd "$1"
npm install --ignore-scripts --no-audit --no-fund --silent --no-save --prefix . \
  @anthropic-ai/claude-code @openai/codex @qwen-code/qwen-code opencode-ai
[ -x v/bin/python ] || "${PYTHON:-python3}" -m venv v
v/bin/python -m pip install --quiet --disable-pip-version-check aider-chat
