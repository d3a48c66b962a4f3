"""Builds and loads causal language models.

Models from scratch are transformers' own classes with the recipe's sizes and random weights.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)

from turnwise.core.errors import ConfigError, boundary
from turnwise.models.attention import register_attention
from turnwise.models.check import choose_path
from turnwise.models.experts import prepare_experts
from turnwise.models.loading import load_whole, quiet_loading
from turnwise.models.model_folder import check_folder, list_weights, read_config
from turnwise.models.routing import ATTENTION_NAME
from turnwise.models.vision.building import ATTENTION, build_config
from turnwise.models.vision.table import is_seeing

AUTO = "auto"
"""Chooses the GPU if torch sees one, else the CPU."""
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(wanted: str) -> torch.device:
    """Return the device for `model.device`: "cpu", "cuda", or "auto", which is "cuda" if torch sees a GPU.

    Raises ConfigError for "cuda" if torch sees none, saying whether torch or the machine lacks it.
    """
    sees_gpu = torch.cuda.is_available()
    if wanted == "cuda" and not sees_gpu:
        built = torch.version.cuda is not None
        lacks = "finds no GPU or no driver" if built else "was built without CUDA"
        remedy = "check `nvidia-smi` and CUDA_VISIBLE_DEVICES" if built else "install a torch built for CUDA"
        raise ConfigError(
            f"model.device='cuda' and torch {torch.__version__} {lacks}; {remedy}, or use model.device='auto' or 'cpu' "
            "(for a run folder: --device cpu)"
        )
    return torch.device("cuda" if sees_gpu else "cpu") if wanted == AUTO else torch.device(wanted)


def describe_device(device: torch.device) -> str:
    """Name the device for people: "cpu", or "cuda" with the GPU's name."""
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


def build_model(
    model_type: str,
    config: Mapping[str, Any],
    *,
    vocab_size: int,
    seed: int,
    dtype: str = "float32",
    device: torch.device | str = "cpu",
) -> PreTrainedModel:
    """Build a randomly initialized model in evaluation mode; its weights depend only on `seed`, on any device.

    Raises ConfigError if transformers does not know `model_type` or refuses `config`.
    """
    register_attention()
    with boundary(ConfigError, f"model.model_type={model_type!r} with model.config={dict(config)}"):
        hf_config = read_config_of(model_type, config, vocab_size=vocab_size)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            if is_seeing(model_type):
                model = AutoModelForImageTextToText.from_config(
                    hf_config, attn_implementation=ATTENTION, dtype=DTYPES[dtype]
                )
            else:
                model = AutoModelForCausalLM.from_config(
                    hf_config, attn_implementation=ATTENTION_NAME, dtype=DTYPES[dtype]
                )
    return _place(model, device)


def read_config_of(model_type: str, config: Mapping[str, Any], *, vocab_size: int) -> PreTrainedConfig:
    """Return transformers' config for the arguments of `build_model`."""
    if is_seeing(model_type):
        return build_config(model_type, config, vocab_size=vocab_size)
    return AutoConfig.for_model(model_type, **{**config, "vocab_size": vocab_size})


def load_model(
    path: Path,
    *,
    dtype: str = "float32",
    trust_remote_code: bool = False,
    device: torch.device | str = "cpu",
    source: str = "model.path",
) -> PreTrainedModel:
    """Load a model from a local Hugging Face directory; nothing is downloaded. `~` is the home folder.

    `source` names the option that `path` is from, for errors. Raises ConfigError naming the path if the directory is
    missing, broken or not a causal language model, or if a tensor of the model would not come from it.
    """
    register_attention()
    path = Path(os.path.expanduser(path))
    where = f"{source}={str(path)!r}"
    table = check_folder(path, where)
    may_trust = source in ("model.path", "checkpoint")
    config = read_config(path, table, where, trust_remote_code=trust_remote_code, may_trust=may_trust)
    sees = is_seeing(config.model_type)
    kind = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    stored = list_weights(path, where)

    def load() -> tuple[PreTrainedModel, Mapping[str, Any]]:
        # Sizes that differ are listed like names that do. The report says what transformers would log as a table.
        with quiet_loading(), boundary(ConfigError, f"{where} cannot be loaded"):
            loaded: tuple[PreTrainedModel, Mapping[str, Any]] = kind.from_pretrained(
                path,
                attn_implementation=ATTENTION if sees else ATTENTION_NAME,
                dtype=DTYPES[dtype],
                trust_remote_code=trust_remote_code,
                local_files_only=True,
                use_safetensors=True,  # other files are pickled
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        return loaded

    return _place(load_whole(load, stored, table, where), device)


def num_parameters(model: PreTrainedModel) -> int:
    """Count the parameters, an adapter's among them; tied weights count once."""
    return sum(p.numel() for p in model.parameters())


def _place(model: PreTrainedModel, device: torch.device | str) -> PreTrainedModel:
    """Move a model made on the CPU, so that random weights do not depend on the device; set evaluation mode."""
    prepare_experts(model, torch.device(device))
    placed: PreTrainedModel = model.to(device)
    return choose_path(placed.eval())
