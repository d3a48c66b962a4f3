"""Checks by names and folders whether an adapter was made for a model. The shapes of its layers are compared elsewhere;
two models of the same shape differ in their names, or in their weights if both folders are available."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch
from safetensors import safe_open

from turnwise.core.errors import ConfigError
from turnwise.models.weight_files import list_stored

_CACHED = re.compile(r"(?:^|/)models--(?P<name>[^/]+)(?:/snapshots/[^/]+)?/?$")
"""A folder in the hub's cache: `.../models--ORG--NAME/snapshots/HASH`."""
_HUB = re.compile(r"[\w.-]+/[\w.-]+")


def check_base(named: str, base: str, where: str) -> None:
    """Raise ConfigError, in a message that begins with `where`, if an adapter made for `named` is not for `base`.

    Each is a folder, a folder in the hub's cache, a name on the hub, or "" for a model without a name. If both are
    folders on this machine, their weights decide. If both have a name on the hub, the names decide. Otherwise the last
    parts are compared, because folders move and a hub model is often in a folder with its name.
    """
    folders = [Path(os.path.expanduser(name)) for name in (named, base)] if named and base else []
    if bool(named) != bool(base):
        what, fits = "names", False
    elif folders and all(folder.is_dir() for folder in folders):
        what, fits = "weights in both folders", _hold_same(*folders)
    else:
        names = _read_hub_name(named), _read_hub_name(base)
        whole = all(name is not None and "/" in name for name in names)
        what = "names of the hub" if whole else "names of the folders"
        fits = _shorten(named, names[0], whole) == _shorten(base, names[1], whole)
    if not fits:
        raise ConfigError(
            f"{where} was made for the model {named!r}, but model.path={base!r} (compared: {what}); if they are the "
            "same, change base_model_name_or_path in its adapter_config.json"
        )


def _read_hub_name(text: str) -> str | None:
    """Return a model's name on the hub, from a folder in its cache or from the form ORG/NAME; None for others."""
    if match := _CACHED.search(text):
        return match["name"].replace("--", "/")
    return text if _HUB.fullmatch(text) and not Path(text).exists() else None


def _shorten(text: str, hub_name: str | None, whole: bool) -> str:
    name = hub_name or text
    # The hub does not distinguish upper and lower case.
    return name.lower() if whole else Path(name).name.lower()


def _hold_same(one: Path, other: Path) -> bool:
    """Whether two folders contain the same model: the same tensors, equal in their first rows. Training changes
    those."""
    if one.resolve() == other.resolve():
        return True
    stored, others = list_stored(one), list_stored(other)
    kinds = [{name: (t.shape, t.dtype) for name, t in each.items()} for each in (stored, others)]
    if kinds[0] != kinds[1]:
        return False
    for name, tensor in stored.items():
        with safe_open(tensor.file, framework="pt") as a, safe_open(others[name].file, framework="pt") as b:
            rows = [file.get_slice(name)[:1] if tensor.shape else file.get_tensor(name) for file in (a, b)]
        if not torch.equal(*rows):
            return False
    return True
