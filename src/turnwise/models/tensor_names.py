"""Describes how the tensors of a file differ from those of a model, and how names that do not fit were changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from turnwise.models.weight_files import list_names

Shape = tuple[int, ...]
WRAPPERS = ("_orig_mod.", "module.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "default.")
"""Parts that torch.compile, DataParallel, FSDP, activation checkpointing and peft insert into names."""


def describe_difference(
    missing: Collection[str],
    unexpected: Collection[str],
    mismatched: Mapping[str, tuple[Shape, Shape]],
    *,
    is_adapter: bool = False,
) -> str | None:
    """Describe what is wrong, with a few names and counts, and the remedy; None if nothing is.

    Args:
        missing: tensors of the model that are not in the file.
        unexpected: tensors in the file that the model does not have.
        mismatched: by name, the shape in the file and that in the model.
        is_adapter: whether file and model refer to an adapter only.
    """
    parts = []
    if missing:
        parts.append(f"lacks {_count(missing)} of the model ({list_names(sorted(missing))})")
    if unexpected:
        parts.append(f"has {_count(unexpected)} not in the model ({list_names(sorted(unexpected))})")
    if mismatched:
        sizes = [f"{name} is {stored}, in the model {own}" for name, (stored, own) in sorted(mismatched.items())]
        parts.append(f"has {_count(mismatched)} of a different size ({list_names(sizes)})")
    if not parts:
        return None
    return f"{', '.join(parts)}; {_find_remedy(missing, unexpected, mismatched, is_adapter)}"


def compare_shapes(own: Mapping[str, Shape], stored: Mapping[str, Shape], *, is_adapter: bool = False) -> str | None:
    """Apply `describe_difference` to a model's and a file's tensors, which have the same names if they fit."""
    return describe_difference(
        own.keys() - stored.keys(),
        stored.keys() - own.keys(),
        {name: (stored[name], own[name]) for name in own.keys() & stored.keys() if stored[name] != own[name]},
        is_adapter=is_adapter,
    )


def _count(names: Collection[str]) -> str:
    return "1 tensor" if len(names) == 1 else f"{len(names)} tensors"


def _find_remedy(
    missing: Collection[str], unexpected: Collection[str], mismatched: Collection[str], is_adapter: bool
) -> str:
    """Return what to do, judged by the form of the names."""
    if not is_adapter and any(".base_layer." in name or ".lora_" in name for name in unexpected):
        return (
            "these names come from a model with an adapter that is not merged: merge it with peft "
            "(`merge_and_unload()`, then save_pretrained), or save the adapter alone and set model.lora.path to it"
        )
    if unexpected and not missing and all(name.startswith("v_head.") for name in unexpected):
        return "these belong to TRL's value head: save only its `pretrained_model`"
    if prefix := _find_prefix(unexpected, missing):
        return f"the names have a wrapper's prefix {prefix!r}: strip it from the names, and save the model again"
    if prefix := _find_prefix(missing, unexpected):
        return f"the names lack the prefix {prefix!r}: add it to the names, and save the model again"
    for wrapper in WRAPPERS:
        if any(wrapper in name and name.replace(wrapper, "") in missing for name in unexpected):
            return f"the names contain a wrapper's {wrapper!r}: strip it from the names, and save the model again"
    if is_adapter:
        return "set model.path to the model that the adapter was made for, or train a new adapter"
    if mismatched and not missing and not unexpected:
        return (
            "set the sizes in config.json to those of the weights (vocab_size and others), or save the model again "
            "after resizing it"
        )
    return "the weights and the config belong to different models, or some were lost; save or fetch the model again"


def _find_prefix(longer: Collection[str], shorter: Collection[str]) -> str | None:
    """Return what precedes a shorter name in most of the longer names; None if fewer than half contain one."""
    known = set(shorter)
    prefixes: Counter[str] = Counter()
    for name in longer:
        # At each point: the longest remainder that is a known name.
        at = name.find(".")
        while at >= 0:
            if name[at + 1 :] in known:
                prefixes[name[: at + 1]] += 1
                break
            at = name.find(".", at + 1)
    if not prefixes:
        return None
    prefix, count = prefixes.most_common(1)[0]
    return prefix if 2 * count >= len(longer) else None
