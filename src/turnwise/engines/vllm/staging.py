"""Weights as files that engines under another interpreter read: written, described and summed before any is loaded."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError, boundary
from turnwise.models.attention import PackedAttention
from turnwise.models.checksums import compute_checksums
from turnwise.models.lora import is_adapter_name

PREFIX = "turnwise-weights-"
MEMORY = Path("/dev/shm")
NUM_CANARY_TOKENS = 48
Canary = tuple[Sequence[int], Sequence[float]]
"""Token ids, and the log-probability of each but the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The weights of one version."""

    folder: Path
    """A Hugging Face directory with `manifest.json`: dtype and shape of every tensor."""
    sums: Mapping[str, int]
    """`compute_checksums` of the model that they were written from."""
    dtype: str
    canary: Canary
    """What that model says about a few tokens."""


class Staging:
    """A folder of this process for weights: in shared memory, or where the recipe says."""

    def __init__(self, parent: Path | None) -> None:
        """`parent` None is shared memory. Folders that processes left there when they were killed are removed.

        Raises EngineError if the folder cannot be written."""
        parent = parent or MEMORY
        with boundary(EngineError, f"weights cannot be staged in {parent}; name another engine.options.staging"):
            parent.mkdir(parents=True, exist_ok=True)
            sweep(parent)
            self.root = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
        self._kept: list[Path] = []
        self._num_written = 0

    def write(self, model: PreTrainedModel) -> Staged:
        """Write the weights of `model`, and forget all but the last two versions.

        Raises EngineError for an adapter, and when they do not fit.
        """
        tensors = {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}
        if any(is_adapter_name(name) for name in tensors):
            raise EngineError("engine.kind='vllm' samples whole models; use engine.kind='paged' with model.lora")
        self._num_written += 1
        folder = self.root / str(self._num_written)
        with boundary(EngineError, f"the weights cannot be staged in {folder}; free space there"):
            folder.mkdir()
            config = copy.deepcopy(model.config)
            # Only a model that is saved whole names its class; without one vLLM takes it for an encoder.
            config.architectures = [type(model).__name__]
            config.save_pretrained(folder)
            manifest = {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()}
            (folder / "manifest.json").write_text(json.dumps(manifest))
            save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        self._kept.append(folder)
        while len(self._kept) > 2:
            shutil.rmtree(self._kept.pop(0), ignore_errors=True)
        dtype = str(model.dtype).removeprefix("torch.")
        return Staged(folder=folder, sums=compute_checksums(model), dtype=dtype, canary=score_canary(model))

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.root, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove the folders of processes that have ended."""
    for folder in parent.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).split("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


@torch.no_grad()
def score_canary(model: PreTrainedModel) -> Canary:
    """What `model` says about tokens spread over its vocabulary, always the same ones."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocab_size, (NUM_CANARY_TOKENS,), generator=generator)
    positions = torch.arange(NUM_CANARY_TOKENS)
    was_training = model.training
    model.eval()
    logits = model(
        input_ids=ids[None].to(model.device),
        position_ids=positions[None].to(model.device),
        attention_plan=PackedAttention([NUM_CANARY_TOKENS]),
        use_cache=False,
    ).logits[0, :-1]
    model.train(was_training)
    logprobs = torch.log_softmax(logits.float(), dim=-1).cpu().gather(1, ids[1:, None])[:, 0]
    return ids.tolist(), logprobs.tolist()
