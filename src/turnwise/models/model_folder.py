"""Checks a folder before a model is loaded from it: it must be a causal language model in Hugging Face's form, in a
number format that can be trained. Every refusal is one line with the remedy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    PreTrainedConfig,
)

from turnwise.core.errors import ConfigError, boundary
from turnwise.models.lora import holds_adapter
from turnwise.models.vision.table import FAMILIES
from turnwise.models.weight_files import StoredTensor, list_names, list_stored

CONFIG = "config.json"
_FLOATS, _OTHERS = ("F64", "F32", "F16", "BF16"), ("I64", "I32", "I16", "I8", "U8", "BOOL")
"""Formats for weights, and for buffers such as masks and counters."""
_PARTS = ("model_world_size_*_rank_*.pt", "*.distcp", "zero_to_fp32.py", "mp_rank_*", "*_optim_states.pt")
"""Files written by FSDP, torch.distributed.checkpoint, DeepSpeed and Megatron."""
_PACKED = ("I8", "U8", "I16", "I32")
_SENSES = ("vision_config", "audio_config", "speech_config", "visual")
_DEQUANTIZE = {
    "fp8": "load it in transformers with quantization_config=FineGrainedFP8Config(dequantize=True) and save_pretrained",
    "mxfp4": "load it in transformers with quantization_config=Mxfp4Config(dequantize=True) and save_pretrained",
    "bitsandbytes": "load it in transformers, call model.dequantize(), and save_pretrained",
}


def check_folder(folder: Path, where: str) -> Mapping[str, Any]:
    """Return the table in config.json. Raises ConfigError, in a message that begins with `where`, if `folder` is not a
    folder with the files of a model."""
    if folder.is_file():
        remedy = (
            f"convert it with `turnwise models convert {folder} --to DIR`"
            if folder.suffix == ".gguf"
            else f"use the folder that contains it, {str(folder.parent)!r}"
        )
        raise ConfigError(f"{where} is a file, not a folder; {remedy}")
    if not folder.is_dir():
        raise ConfigError(
            f"{where}: there is no such folder; use a local Hugging Face model directory (a run downloads nothing: "
            "fetch a model from the hub first, with `hf download ORG/NAME --local-dir DIR`); if it was moved after a "
            f"run started, `ln -s NEW_FOLDER {folder}`"
        )
    if not any(folder.iterdir()):
        raise ConfigError(f"{where} is an empty folder; use a local Hugging Face model directory")
    if not (folder / CONFIG).is_file():
        raise ConfigError(f"{where} {_describe_without_config(folder)}")
    if holds_adapter(folder):
        # transformers would load the model that the adapter names, from any place, and attach the adapter.
        raise ConfigError(
            f"{where} contains both a model and an adapter (adapter_config.json); move the adapter's files to another "
            "folder, and set model.lora.path to that folder to train the adapter further"
        )
    try:
        table = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise ConfigError(f"{where}: cannot read {CONFIG} ({cause}); copy the model again") from cause
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: {CONFIG} is not a JSON object; copy the model again")
    return table


def read_model_type(folder: Path) -> str | None:
    """Return `model_type` in a folder's config.json; None if it cannot be read, which is refused where the model is
    loaded."""
    try:
        table = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(table["model_type"]) if isinstance(table, dict) and table.get("model_type") else None


def _describe_without_config(folder: Path) -> str:
    if holds_adapter(folder):
        return (
            "contains an adapter but no model; set model.lora.path to it, and model.path to the model it was made for "
            "(base_model_name_or_path in its adapter_config.json)"
        )
    if any(folder.glob("*.gguf")):
        return "contains a GGUF file but no config.json; convert it with `turnwise models convert FILE --to DIR`"
    if parts := [path for pattern in _PARTS for path in folder.glob(pattern)]:
        return (
            f"contains parts of a trainer's checkpoint ({list_names(sorted(part.name for part in parts))}) but no "
            "model; merge them with that trainer's own tool (verl: `python -m verl.model_merger`, DeepSpeed: "
            "zero_to_fp32.py)"
        )
    below = next((found.parent for depth in ("*", "*/*") for found in sorted(folder.glob(f"{depth}/{CONFIG}"))), None)
    hint = "use a local Hugging Face model directory" if below is None else f"did you mean {str(below)!r}?"
    return f"has no config.json; {hint}"


def read_config(
    folder: Path, table: Mapping[str, Any], where: str, *, trust_remote_code: bool, may_trust: bool = True
) -> PreTrainedConfig:
    """Return the configuration in the folder. Raises ConfigError, in a message that begins with `where`, if it is not
    that of a causal language model in full precision that the installed transformers, or trusted code in the folder,
    can build. `may_trust` says whether `model.trust_remote_code` applies to this folder."""
    _check_precision(folder, table, where)
    kind, written = table.get("model_type"), table.get("transformers_version")
    if "auto_map" in table and (trust_remote_code or kind not in CONFIG_MAPPING):
        _check_code(folder, table["auto_map"], where, is_known=kind in CONFIG_MAPPING)
    if "auto_map" in table and kind not in CONFIG_MAPPING and not trust_remote_code:
        remedy = "read the code, then set model.trust_remote_code=true, or " if may_trust else ""
        raise ConfigError(
            f"{where} has model_type {kind!r}, whose code is in the folder, not in transformers; {remedy}use a model "
            "that transformers supports"
        )
    if not kind and "auto_map" not in table:
        raise ConfigError(f"{where}: {CONFIG} has no model_type; copy the config from the model, or add its model_type")
    if kind not in CONFIG_MAPPING and "auto_map" not in table:
        by = f" and was written with transformers {written}" if written else ""
        raise ConfigError(
            f"{where} has model_type {kind!r}{by}, which transformers {transformers.__version__} does not support; "
            "install a newer one with `pip install -U transformers`"
        )
    with boundary(ConfigError, f"{where}: {CONFIG} cannot be read"):
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True
        )
    if type(config) in CONFIG_MAPPING.values():
        _check_causal(config, where)
    return config


def _check_code(folder: Path, code: Any, where: str, *, is_known: bool) -> None:
    """Raise ConfigError if the code that `auto_map` names for a causal language model is not in the folder. A model
    type that transformers knows may take only a part of its code from there."""
    if not isinstance(code, Mapping):
        raise ConfigError(f"{where}: auto_map is {code!r}; it must be a table; copy the config of the model again")
    for use in ("AutoConfig", "AutoModelForCausalLM"):
        given = code.get(use)
        if given is None and is_known:
            continue
        if given is None:
            raise ConfigError(f"{where}: auto_map names no code for {use}; take a causal language model")
        named = given[0] if isinstance(given, list) and given else given
        if not isinstance(named, str) or "." not in named:
            raise ConfigError(f"{where}: auto_map's {use} is {given!r}; it must name a file and a class: 'file.Class'")
        repository, mark, local = named.rpartition("--")
        file = f"{local.rsplit('.', 1)[0]}.py"
        if mark:
            raise ConfigError(
                f"{where} takes code from {file} of {repository}, which is not read over the network; copy it into the "
                f"folder and remove {repository + mark!r} from auto_map in {CONFIG}"
            )
        if not (folder / file).is_file():
            raise ConfigError(
                f"{where} takes code from {file}, which is not in the folder; copy it from where the model came from, "
                "or take a model that transformers knows"
            )


def _check_precision(folder: Path, table: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError if the config says that the weights are quantized."""
    entry = table.get("quantization_config") or table.get("compression_config")
    if not entry and (folder / "hf_quant_config.json").is_file():
        entry = {"quant_method": "modelopt"}
    if not entry:
        return
    method = str(entry.get("quant_method") or "unnamed") if isinstance(entry, dict) else str(entry)
    remedy = _DEQUANTIZE.get(method, "use the model's unquantized weights, or dequantize them and save_pretrained")
    raise ConfigError(f"{where} contains weights quantized by {method!r}, which cannot be trained; {remedy}")


def _check_causal(config: PreTrainedConfig, where: str) -> None:
    """Raise ConfigError if a model of a transformers class is neither a causal language model for text nor one of the
    vision-language models that are known here."""
    if config.model_type in FAMILIES:
        return
    kind, lead = type(config), f"{where} is of model_type {config.model_type!r},"
    causal = kind in MODEL_FOR_CAUSAL_LM_MAPPING and MODEL_FOR_CAUSAL_LM_MAPPING[kind]
    sees = kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING or any(getattr(config, name, None) for name in _SENSES)
    if sees and (not causal or causal in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING.values()):
        raise ConfigError(
            f"{lead} a vision-language or audio model of a family that is not trained here (docs/vision.md lists those "
            "that are); use a text model of its family, or save its text part (config.text_config, language_model and "
            "lm_head) to another folder"
        )
    if config.is_encoder_decoder:
        raise ConfigError(f"{lead} an encoder-decoder; use a decoder-only model, such as Qwen3 or Llama")
    bidirectional = getattr(config, "use_bidirectional_attention", False) in (True, "all")
    if (kind in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False)) or bidirectional:
        raise ConfigError(
            f"{lead} an encoder, whose tokens attend to later ones; use a causal model, such as Qwen3 or Llama"
        )
    if not causal:
        raise ConfigError(
            f"{lead} which is not a causal language model in transformers; use one, such as Qwen3 or Llama"
        )


def list_weights(folder: Path, where: str) -> dict[str, StoredTensor]:
    """Return every tensor in the folder, by name. Raises ConfigError as `list_stored` does, and for weights in a format
    that cannot be trained."""
    stored = list_stored(folder, where=where)
    named = sorted(
        name
        for name, tensor in stored.items()
        if tensor.dtype not in (*_FLOATS, *_OTHERS) or (tensor.dtype in _PACKED and len(tensor.shape) == 2)
    )
    if named:
        formats = {stored[name].dtype for name in named}
        raise ConfigError(
            f"{where} contains weights in {' and '.join(sorted(formats))} ({list_names(named)}) without the scales "
            "that a quantization_config would specify; use the model's unquantized weights"
        )
    return stored
