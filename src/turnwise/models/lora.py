"""LoRA adapters (arXiv 2106.09685), in the modules and the file format of the package `peft`.

An adapter wraps linear layers of a model in place, so the model keeps its class, and engines and training run it like
any other. Only the adapter's parameters require gradients. All other parameters are frozen, and copies of the model
share them (`copy_model`).
"""

from __future__ import annotations

import copy
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from turnwise.core.errors import ConfigError, boundary
from turnwise.models.adapter_base import check_base
from turnwise.models.adapter_tensors import leave_out_base, read_tensors
from turnwise.models.tensor_names import compare_shapes
from turnwise.models.vision.tower import is_frozen, match_tower

ADAPTER = "default"
"""peft's name for a model's one adapter."""
CONFIG_FILE, WEIGHTS_FILE, PICKLED_FILE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
MIN_PEFT = (0, 20)
_MARK, _PREFIX = ".lora_", "base_model.model."
_PLAIN_OPTIONS = frozenset(
    (
        *("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "lora_dropout", "inference_mode"),
        *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "fan_in_fan_out"),
        *("task_type", "peft_type", "peft_version", "auto_mapping", "base_model_name_or_path", "revision"),
        *("loftq_config", "runtime_config", "ensure_weight_tying"),
    )
)
"""Options of peft that do not change any matrix product, or are followed here; any other option that is set is
refused."""

Module = TypeVar("Module", bound=torch.nn.Module)
Value = TypeVar("Value")


def is_adapter_name(name: str) -> bool:
    """Whether a parameter of this name belongs to an adapter."""
    return _MARK in name


def list_adapter(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the adapter's parameters by name; empty for a model without one."""
    return {name: parameter for name, parameter in model.named_parameters() if is_adapter_name(name)}


def list_base(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return all other parameters, by the names that they have in the model without its adapter."""
    named = model.named_parameters()
    return {name.replace(".base_layer.", "."): parameter for name, parameter in named if not is_adapter_name(name)}


def holds_adapter(folder: Path) -> bool:
    """Whether a folder contains an adapter in peft's format."""
    return (folder / CONFIG_FILE).is_file()


def copy_model(model: Module) -> Module:
    """Return a copy that shares the frozen parameters: in a model with an adapter, only the adapter is copied."""
    frozen = {id(parameter): parameter for parameter in model.parameters() if not parameter.requires_grad}
    return copy.deepcopy(model, frozen)


# ---------------------------------------------------------------------------------------------------------- attaching


def add_adapter(
    model: PreTrainedModel,
    *,
    rank: int,
    alpha: float,
    dropout: float,
    target_modules: Literal["all-linear"] | Sequence[str],
    base: str,
    seed: int,
) -> PreTrainedModel:
    """Attach a fresh adapter, which adds nothing yet, and freeze all other parameters; returns `model`.

    Args:
        target_modules: last parts of the names of linear layers, or "all-linear" for all but the output layer; none in
            a frozen vision tower.
        base: name of the model for the adapter's file, "" for a model without a name.
        seed: determines the random matrices A.

    Raises ConfigError if peft is missing, or a name matches no linear layer.
    """
    peft = _import_peft()
    head = model.get_output_embeddings()
    left_out = match_tower(model) if is_frozen(model) else None
    layers = {path: layer for path, layer in model.named_modules() if not re.fullmatch(left_out or "", path)}
    linear = {
        path.split(".")[-1]
        for path, layer in layers.items()
        if isinstance(layer, torch.nn.Linear) and layer is not head
    }
    names = sorted(linear) if isinstance(target_modules, str) else list(target_modules)
    if isinstance(target_modules, str):
        # peft goes by names: a convolution may be called like a linear layer elsewhere.
        others = [
            p for p, layer in layers.items() if p.split(".")[-1] in linear and not isinstance(layer, torch.nn.Linear)
        ]
        left_out = "|".join([*([left_out] if left_out else []), *map(re.escape, others)]) or None
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=names,
        exclude_modules=left_out,
        task_type="CAUSAL_LM",
        base_model_name_or_path=_absolute(base),
    )
    for name in names:
        if not any(path.split(".")[-1] == name for path in layers):
            where = "outside its frozen tower (model.freeze_vision)" if left_out else "of that name"
            raise ConfigError(
                f"model.lora.target_modules has {name!r}, but the model has no layer {where}; it has "
                f"{', '.join(sorted(linear))}"
            )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        _inject(model, config, "model.lora")
    return model


def load_adapter(model: PreTrainedModel, folder: Path, *, base: str, dropout: float = 0.0) -> PreTrainedModel:
    """Attach the adapter in `folder` to the model it was made for, `base` ("" for one without a name); returns `model`.

    Raises ConfigError if peft is missing, the adapter is not plain LoRA on linear layers, or it was made for another
    model (see `check_base`), or its layers or their shapes differ.
    """
    peft = _import_peft()
    where = f"adapter {str(folder)!r}"
    if (folder / PICKLED_FILE).is_file() and not (folder / WEIGHTS_FILE).is_file():
        raise ConfigError(
            f"{where} contains only pickled weights ({PICKLED_FILE}), which can run code when loaded; if you trust "
            "them, load them with peft and save_pretrained to another folder"
        )
    if not (folder / CONFIG_FILE).is_file() or not (folder / WEIGHTS_FILE).is_file():
        named = [path.parent.name for path in sorted(folder.glob(f"*/{CONFIG_FILE}"))]
        other = f"; did you mean {str(folder / named[0])!r}?" if named else "; use a folder in peft's format"
        raise ConfigError(f"{where} lacks {CONFIG_FILE} or {WEIGHTS_FILE}{other}")
    with boundary(ConfigError, f"{where} cannot be read"):
        config = peft.PeftConfig.from_pretrained(str(folder))
    stored = read_tensors(folder / WEIGHTS_FILE, where)
    _check_kind(peft, config, where)
    check_base(str(config.base_model_name_or_path or ""), base, where)
    config.inference_mode, config.lora_dropout = False, dropout
    with torch.random.fork_rng(devices=[]):
        _inject(model, config, where)
    own = name_in_file(list_adapter(model))
    stored = leave_out_base(stored, {_PREFIX + name: tensor for name, tensor in list_base(model).items()}, where)
    shapes = [{name: tuple(tensor.shape) for name, tensor in each.items()} for each in (own, stored)]
    problem = compare_shapes(*shapes, is_adapter=True)
    if problem is not None:
        raise ConfigError(f"{where} belongs to another model than model.path={base!r}: it {problem}")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(stored[name])
    return model


def describe_adapter(model: PreTrainedModel) -> dict[str, Any] | None:
    """Return peft's configuration of a model's adapter as plain data; None for a model without one."""
    config = getattr(model, "peft_config", {}).get(ADAPTER)
    if config is None:
        return None
    return {name: sorted(value) if isinstance(value, set) else value for name, value in config.to_dict().items()}


def inject_adapter(model: PreTrainedModel, description: Mapping[str, Any]) -> None:
    """Attach an adapter with this configuration to a model, with uninitialised tensors."""
    _inject(model, _import_peft().LoraConfig(**description), "the adapter")


def _import_peft() -> Any:
    try:
        import peft
    except ImportError as cause:
        raise ConfigError(f"model.lora needs the package peft ({cause}); pip install 'turnwise[lora]'") from None
    if tuple(int(number) for number in re.findall(r"\d+", peft.__version__)[:2]) < MIN_PEFT:
        raise ConfigError(
            f"model.lora needs peft {'.'.join(map(str, MIN_PEFT))} or newer, but {peft.__version__} is installed; pip "
            "install -U 'turnwise[lora]'"
        )
    return peft


def _inject(model: PreTrainedModel, config: Any, where: str) -> None:
    """Wrap the layers that `config` names, and freeze everything else."""
    from peft.tuners.lora import Linear

    head = model.get_output_embeddings()
    with boundary(ConfigError, f"{where} does not fit the model"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*tie_word_embeddings", UserWarning)  # refused below, by the layer's name
        _import_peft().inject_adapter_in_model(config, model, ADAPTER)
    for name, layer in model.named_modules():
        if not any(ADAPTER in getattr(layer, part, ()) for part in ("lora_A", "lora_embedding_A")):
            continue
        if not isinstance(layer, Linear):
            raise ConfigError(f"{where} names {name}, which is not a linear layer; remove it from target_modules")
        if layer.get_base_layer() is head and head.weight is model.get_input_embeddings().weight:
            raise ConfigError(f"{where} names {name}, which shares its weights with the embedding; remove it")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_adapter_name(name))
        if is_adapter_name(name) and parameter.dtype in (torch.bfloat16, torch.float16):
            parameter.data = parameter.data.float()  # steps are smaller than what these formats can add to a weight
    model.eval()  # new modules are in training mode, which would turn dropout on


def _check_kind(peft: Any, config: Any, where: str) -> None:
    """Raise ConfigError unless the adapter is plain LoRA."""
    if not isinstance(config, peft.LoraConfig):
        raise ConfigError(f"{where} is a {config.peft_type} adapter; only LoRA is supported")
    if not isinstance(config.lora_alpha, int | float) or config.lora_alpha <= 0:
        raise ConfigError(
            f"{where} has lora_alpha={config.lora_alpha!r}, which scales the whole adapter; it must be a number above 0"
        )
    usual = peft.LoraConfig()
    for option, value in vars(config).items():
        if option == "init_lora_weights":
            is_plain = value in (True, False, "gaussian")
        else:
            is_plain = option in _PLAIN_OPTIONS or not value or value == getattr(usual, option, None)
        if not is_plain:
            raise ConfigError(f"{where} has {option}={value!r}; only plain LoRA on linear layers is supported")


def _absolute(base: str) -> str:
    """Return the name for `base_model_name_or_path`, which is read from other folders."""
    return str(Path(os.path.expanduser(base)).resolve()) if base else ""


# ---------------------------------------------------------------------------------------------------------- on disk


def save_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Write the adapter in peft's format, which `peft.PeftModel.from_pretrained(base, folder)` reads."""
    config = copy.deepcopy(model.peft_config[ADAPTER])
    config.inference_mode = True
    if not isinstance(config.target_modules, str):  # a pattern, or a set in no order
        config.target_modules = sorted(config.target_modules)
    config.save_pretrained(str(folder))
    tensors = {name: parameter.detach().contiguous() for name, parameter in name_in_file(list_adapter(model)).items()}
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})


def name_in_file(by_name: Mapping[str, Value]) -> dict[str, Value]:
    """Rename entries named as in `list_adapter` to the names in peft's file."""
    return {_PREFIX + name.replace(f".{ADAPTER}.", "."): value for name, value in by_name.items()}


def read_adapter(folder: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of an adapter in peft's format, by their names in `list_adapter`. Raises what safetensors
    raises."""
    tensors: Mapping[str, torch.Tensor] = load_file(folder / WEIGHTS_FILE)
    return {name.removeprefix(_PREFIX).replace(".weight", f".{ADAPTER}.weight"): t for name, t in tensors.items()}


# ---------------------------------------------------------------------------------------------------------- merging


def compute_merged_weight(layer: Any) -> torch.Tensor:
    """Compute the effective weight `[N, K]` of a linear layer, rounded to its dtype; its own weight if it has no
    adapter."""
    weight: torch.Tensor = layer.weight
    if ADAPTER not in getattr(layer, "lora_A", ()):
        return weight
    with torch.no_grad():
        delta: torch.Tensor = layer.get_delta_weight(ADAPTER)
        return (weight + delta).to(weight.dtype)


def merge_adapter(model: PreTrainedModel) -> PreTrainedModel:
    """Turn a model with an adapter into one without that computes the same up to rounding; returns `model`.

    Weights that other copies share are not changed. A model without an adapter is returned unchanged.
    """
    layers = [(name, layer) for name, layer in model.named_modules() if ADAPTER in getattr(layer, "lora_A", ())]
    for name, layer in layers:
        linear = layer.get_base_layer()
        linear.weight = torch.nn.Parameter(compute_merged_weight(layer), requires_grad=False)
        model.set_submodule(name, linear)
    if layers:
        del model.peft_config
    return model


# ---------------------------------------------------------------------------------------------------------- dropout


@contextmanager
def apply_dropout(model: torch.nn.Module, seed: int) -> Iterator[None]:
    """Within the context, the adapter's dropout is on, with random numbers determined by `seed`."""
    dropouts = [m for name, m in model.named_modules() if ".lora_dropout." in name and isinstance(m, torch.nn.Dropout)]
    layers = [layer for layer in dropouts if layer.p > 0]
    if not layers:
        yield
        return
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed % 2**63)
        try:
            for layer in layers:
                layer.train()
            yield
        finally:
            for layer in layers:
                layer.eval()
