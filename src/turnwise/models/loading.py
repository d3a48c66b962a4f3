"""Proves that every tensor of a loaded model came from its folder, and that every tensor in the folder was used.

Two accounts must agree. The loading report of transformers lists tensors that are missing, unexpected or of another
size. Random numbers are checked independently: a load that drew any is repeated with another seed, and tensors that
differ were not loaded, whatever the report says.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.core.errors import ConfigError
from turnwise.models.structure import list_saved
from turnwise.models.tensor_names import describe_difference
from turnwise.models.weight_files import StoredTensor, list_names

_CONSTANT = re.compile(r"\.attn\.masked_bias$")
"""A constant that old GPT-2 models saved in each layer, and that today's code creates itself."""
Load = Callable[[], tuple[PreTrainedModel, Mapping[str, Any]]]
"""Loads a model; returns the model and the loading report."""


def load_whole(load: Load, stored: Mapping[str, StoredTensor], table: Mapping[str, Any], where: str) -> PreTrainedModel:
    """Load a model and verify that all its tensors come from the folder.

    `stored` are the folder's tensors, `table` its config.json. Otherwise raises ConfigError, in a message that begins
    with `where`, naming tensors and remedy.
    """
    model, report, drew = _load_seeded(load, 0)
    problem = describe_difference(
        list_missing(model, report, stored),
        sorted(name for name in report["unexpected_keys"] if not _CONSTANT.search(name)),
        {name: (tuple(old), tuple(new)) for name, old, new in report["mismatched_keys"]},
    )
    if problem is not None:
        raise ConfigError(f"{where} {problem}{_describe_class(table)}")
    if drew:
        again, _, _ = _load_seeded(load, 1)
        pairs = zip(model.state_dict().items(), again.state_dict().values(), strict=True)
        made_up = [name for (name, tensor), other in pairs if not torch.equal(tensor, other)]
        if made_up:
            raise ConfigError(
                f"{where}: transformers silently fills {list_names(made_up)} with random numbers; the folder does not "
                "match the code that reads it"
            )
    _check_head(model, where)
    return model


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Within the context, transformers logs errors but no loading report."""
    # A filter, because another log level would also change what transformers does and what else it logs.
    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(_is_error)
    try:
        yield
    finally:
        logger.removeFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _load_seeded(load: Load, seed: int) -> tuple[PreTrainedModel, Mapping[str, Any], bool]:
    """Return the model, its report, and whether random numbers were drawn; the caller's random state is unchanged."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        model, report = load()
        return model, report, not torch.equal(before, torch.get_rng_state())


def list_missing(model: PreTrainedModel, report: Mapping[str, Any], stored: Mapping[str, StoredTensor]) -> list[str]:
    """List the model's tensors that were not loaded from the folder.

    A tensor may have several names, of which the folder needs one: what counts is that it is the same tensor, not what
    a config says about ties. Names that a class allows to be missing still count as missing if the folder lacks them.
    """
    lenient = [re.compile(pattern) for pattern in model._keys_to_ignore_on_load_missing or ()]
    missing = set(report["missing_keys"])
    names: dict[int, list[str]] = {}
    for name, tensor in list_saved(model).items():
        names.setdefault(id(tensor), []).append(name)
        if name not in stored and any(pattern.search(name) for pattern in lenient):
            missing.add(name)
    return [group[0] for group in names.values() if missing.issuperset(group)]


def _describe_class(table: Mapping[str, Any]) -> str:
    """Return a remark about the class that the folder was saved as, if it has no output layer over the vocabulary."""
    classes = [str(name) for name in table.get("architectures") or ()]
    other = [name for name in classes if not name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"))]
    return f" (it was saved as {other[0]}, which is not a causal language model)" if other else ""


def _check_head(model: PreTrainedModel, where: str) -> None:
    """Raise ConfigError unless the output layer has a row for each row of the embedding; record a declared tie that
    does not hold."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is None:
        raise ConfigError(f"{where} has no output layer over its vocabulary; use a causal language model")
    sizes = [int(layer.weight.shape[0]) for layer in (embedding, head)]
    if sizes[0] != sizes[1]:
        raise ConfigError(
            f"{where} has {sizes[0]} rows of embeddings and an output layer of {sizes[1]}; resize both in transformers "
            "with model.resize_token_embeddings(N), and save_pretrained"
        )
    if head.weight is not embedding.weight:
        # transformers ties nothing if a folder contains two different tensors; the saved config must record that.
        model.config.tie_word_embeddings = False
