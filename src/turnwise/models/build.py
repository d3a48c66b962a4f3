"""Build and load causal language models.

Models from scratch are transformers' own classes with the recipe's sizes and random weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from turnwise.core.errors import ConfigError, boundary
from turnwise.models.attention import ATTENTION_NAME, register_attention
from turnwise.models.experts import prepare_experts
from turnwise.models.lora import holds_adapter

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
    """Build a model with random weights, a function of `seed` alone on any device, in evaluation mode.

    Raises ConfigError if transformers does not know `model_type` or refuses `config`.
    """
    register_attention()
    with boundary(ConfigError, f"model.model_type={model_type!r} with model.config={dict(config)}"):
        hf_config = AutoConfig.for_model(model_type, **{**config, "vocab_size": vocab_size})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            model = AutoModelForCausalLM.from_config(hf_config, attn_implementation=ATTENTION_NAME, dtype=DTYPES[dtype])
    return _place(model, device)


def load_model(
    path: Path, *, dtype: str = "float32", trust_remote_code: bool = False, device: torch.device | str = "cpu"
) -> PreTrainedModel:
    """Load a model from a local Hugging Face directory; nothing is downloaded.

    Raises ConfigError naming the path if the directory is missing or not a causal language model.
    """
    register_attention()
    if holds_adapter(path) and not (path / "config.json").is_file():
        raise ConfigError(
            f"model.path={str(path)!r} holds an adapter and no model; set model.lora.path to it, and model.path to the "
            "model it was made for"
        )
    if not (path / "config.json").is_file():
        raise ConfigError(f"model.path={str(path)!r} holds no config.json; give a local Hugging Face model directory")
    with boundary(ConfigError, f"model.path={str(path)!r} cannot be loaded"):
        model = AutoModelForCausalLM.from_pretrained(
            path,
            attn_implementation=ATTENTION_NAME,
            dtype=DTYPES[dtype],
            trust_remote_code=trust_remote_code,
            local_files_only=True,
            use_safetensors=True,  # other files are pickled
        )
    return _place(model, device)


def num_parameters(model: PreTrainedModel) -> int:
    """Count the parameters, an adapter's among them; tied weights count once."""
    return sum(p.numel() for p in model.parameters())


def _place(model: PreTrainedModel, device: torch.device | str) -> PreTrainedModel:
    """Move a model made on the CPU, so that random weights do not depend on the device; set evaluation mode."""
    prepare_experts(model, torch.device(device))
    placed: PreTrainedModel = model.to(device)
    return placed.eval()
