"""Counts the sizes of any causal transformers model on the model itself: it is built from its config on torch's meta
device, where tensors have shapes but no memory."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)

from turnwise.config.catalog import find_model
from turnwise.config.model import ModelSection
from turnwise.core.errors import ConfigError, boundary
from turnwise.models.build import DTYPES, read_config_of
from turnwise.models.shape import Measured, ModelShape, Tower, parse_shape, read_section_shape, read_shape_at
from turnwise.models.vision.table import is_seeing
from turnwise.models.vision.tower import list_tower

LENGTHS = (256, 512, 1024)
"""Lengths of the rows for measuring what a forward pass keeps: three numbers for a polynomial of degree two; multiples
of the pieces that recurrent layers compute."""

USUAL_SIDE = 448
"""Pixels of a side of a picture, for towers that take any size."""


def measure_policy(section: ModelSection, *, vocab_size: int) -> ModelShape | None:
    """Return the sizes of a recipe's policy; None if they are unknown."""
    return measure_at(section, section.path, vocab_size=vocab_size)


def measure_at(section: ModelSection, path: str, *, vocab_size: int) -> ModelShape | None:
    """Return the sizes of the model at `path`, or of that in `model.config` if it is empty, counted on it; by formula
    if it cannot be built from its config, and None if they are unknown. `vocab_size` is that of a tokenizer that is
    trained."""
    shape = read_shape_at(path) if path else read_section_shape(section, vocab_size=vocab_size)
    try:
        with boundary(ConfigError, "cannot read the config"):
            config = _read_config(section, path, vocab_size)
            structure = config.get_text_config()
            types = getattr(structure, "layer_types", None) or getattr(structure, "layers_block_type", None)
            names = ("hidden_size", "num_attention_heads", "num_hidden_layers")
            sizes = {name: getattr(structure, name, None) for name in names}
            filled = {**structure.to_dict(), **sizes, "layer_types": types}
        shape = parse_shape(filled, is_complete=True) or shape
        if shape is None:
            return None
        if is_seeing(config.model_type):
            return measure_seeing(config, shape, section)
        return measure_model(structure, shape, section)
    except ConfigError:  # of an architecture unknown to transformers: the formula applies
        return shape


def _read_config(section: ModelSection, path: str, vocab_size: int) -> PreTrainedConfig:
    if path:
        found: PreTrainedConfig = AutoConfig.from_pretrained(
            find_model(path), trust_remote_code=section.trust_remote_code, local_files_only=True
        )
        return found
    wanted: Any = section.config.get("vocab_size", vocab_size)
    return read_config_of(section.model_type, section.config, vocab_size=wanted)


def measure_seeing(config: PreTrainedConfig, shape: ModelShape, section: ModelSection) -> ModelShape:
    """Return the shape of a vision-language model's text part with what was counted on it, and its tower. Raises
    ConfigError if transformers cannot build it."""
    with boundary(ConfigError, "cannot build the model"), torch.device("meta"):
        # A copy, because transformers writes the attention into the config.
        model: PreTrainedModel = AutoModelForImageTextToText.from_config(
            copy.deepcopy(config), dtype=DTYPES[section.dtype]
        )
    towers = list_tower(model)
    num_parameters = sum(p.numel() for module in towers.values() for p in module.parameters())
    measured = _count(model, shape, left_out=tuple(towers))
    # An adapter goes into a tower too unless that is frozen.
    linears = measured.linears if section.freezes_vision else _count(model, shape).linears
    tower = read_tower(config, num_parameters)
    is_packed = shape.is_packed and model._supports_attention_backend
    return replace(shape, measured=replace(measured, linears=linears), tower=tower, is_packed=is_packed)


def read_tower(config: PreTrainedConfig, num_parameters: int) -> Tower:
    """Read the sizes of a tower with so many parameters in the config of its model."""
    vision: Any = config.vision_config

    def read(*names: str, default: Any = None) -> Any:
        values = (getattr(owner, name, None) for owner in (vision, config) for name in names)
        value = next((value for value in values if value is not None), default)
        return value[0] if isinstance(value, list | tuple) else value

    width = int(read("embed_dim", "hidden_size"))
    side = int(read("image_size", default=USUAL_SIDE)) // int(read("patch_size"))
    merged = int(read("spatial_merge_size", "scale_factor", default=1))
    if (ratio := read("downsample_ratio")) is not None:  # InternVL's, of one side
        merged = round(1 / float(ratio))
    return Tower(
        parameters=num_parameters,
        num_layers=int(read("num_hidden_layers", "depth")),
        hidden_size=width,
        intermediate_size=int(read("intermediate_size", default=4 * width)),
        patches=side**2,
        places=side**2 // merged**2,
    )


def measure_model(structure: PreTrainedConfig, shape: ModelShape, section: ModelSection) -> ModelShape:
    """Return a shape with the features of a model of this structure; what its own modules keep and cache is included
    only if it computes with them. Raises ConfigError if transformers cannot build it."""
    # Numbers are counted, whatever their format; on the meta device, experts compute only in bfloat16.
    dtype = torch.bfloat16 if shape.num_experts > 1 else DTYPES[section.dtype]
    with boundary(ConfigError, "cannot build the model"), torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            structure, attn_implementation="eager", dtype=dtype, trust_remote_code=section.trust_remote_code
        )
    measured = _count(model, shape)
    # Attention that cannot be replaced (ALiBi's, say) is never laid end to end.
    is_packed = shape.is_packed and model._supports_attention_backend
    if not is_packed:
        with suppress(ConfigError), boundary(ConfigError, "the model does not run on the meta device"):
            measured = _run(model, measured)
    return replace(shape, measured=measured, is_packed=is_packed)


def _count(model: PreTrainedModel, shape: ModelShape, left_out: tuple[str, ...] = ()) -> Measured:
    """Count a model without the modules named `left_out`."""
    embedding = model.get_input_embeddings().weight
    is_tied = model.get_output_embeddings() is None or model.get_output_embeddings().weight is embedding
    total, multiplied = 0, 0.0
    for name, parameter in model.named_parameters():
        if name.startswith(left_out):
            continue
        total += parameter.numel()
        if parameter.ndim < 2 or (parameter is embedding and not is_tied):
            continue
        is_mixed = shape.num_experts > 1 and ".experts" in name and "shared" not in name
        multiplied += parameter.numel() * (shape.num_chosen / shape.num_experts if is_mixed else 1)
    linears: Counter[str] = Counter()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and not name.startswith(left_out):
            linears[name.split(".")[-1]] += module.in_features + module.out_features
    return Measured(parameters=total, multiplied=int(multiplied), linears=tuple(sorted(linears.items())))


def _run(model: PreTrainedModel, counted: Measured) -> Measured:
    """Run the model's own modules on rows of three lengths, and fit what they keep to a constant, the tokens and the
    pairs of tokens in a row."""
    kept, cached = zip(*(_keep(model, length) for length in LENGTHS), strict=True)
    first, second, third = LENGTHS
    # From s(n) = c + b n + a n^2 at n, 2 n and 4 n.
    slopes = (kept[1] - kept[0]) / (second - first), (kept[2] - kept[1]) / (third - second)
    per_pair = max(0.0, (slopes[1] - slopes[0]) / (third - first))
    per_token = max(0.0, kept[2] / third - per_pair * third)
    per_cached = (cached[2] - cached[1]) // (third - second)
    return replace(counted, cached=per_cached, states=cached[2] - per_cached * third, saved=(per_token, per_pair))


def _keep(model: PreTrainedModel, length: int) -> tuple[int, int]:
    """Return the bytes that a forward pass over one row keeps for the backward pass, without logits, and the count of
    numbers in its cache."""
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    ids = torch.zeros(1, length, dtype=torch.long, device="meta")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        # With a cache, because without one the positions' values are read, which do not exist.
        output = model(input_ids=ids, use_cache=True, logits_to_keep=1)
    cache = getattr(output, "past_key_values", None)
    cache = getattr(output, "cache_params", None) if cache is None else cache
    return sum(storage.nbytes() for storage in kept.values()), _count_numbers(cache, 0)


def _count_numbers(value: Any, depth: int) -> int:
    """Count the numbers in the tensors of a cache, whatever its form."""
    if isinstance(value, torch.Tensor):
        return value.numel() if value.ndim > 1 else 0
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return sum(_count_numbers(each, depth + 1) for each in value)
    is_part = type(value).__module__.startswith("transformers.cache_utils") or depth == 0
    if depth > 6 or not is_part or isinstance(value, PreTrainedConfig):
        return 0
    return sum(_count_numbers(each, depth + 1) for each in getattr(value, "__dict__", {}).values())
