"""Writes tests/agreement/golden.npz and golden.json: what the peers give for the batches of `batches.py`.

    .venv-peers/bin/python -m peers.make_golden            writes both files
    .venv-peers/bin/python -m peers.make_golden --check    recomputes and compares with the committed files

The manifest names, per case, the peer, its version, the function, its options, the batch, the arrays it gave, and which
of them hang on float32. Arrays lie in the npz as `<case>:<output>`, the batches' as `batch/<name>:<field>`.

Numbers are compared in the precision of their maker. Some functions compute in float32 whatever they are given, and
that rounds differently on another processor. Which arrays do is measured: every case runs once more with each float32
result changed by one unit in the last place (`ShakeFloat32`). Arrays that change agree within `FLOAT32_ULPS` such units
of their largest number; all others agree to 1e-9."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peers.batches import BATCHES
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

FOLDER = Path(__file__).parent.parent / "tests" / "agreement"
PEERS = ("verl", "trl")
FLOAT32_ULPS = 8
"""Sums of some dozens of numbers in another order differ by a few units in the last place."""


class ShakeFloat32(TorchDispatchMode):
    """Changes every rounded float32 result of torch by one unit in the last place, up or down by turns, as another
    processor may. Values of few digits (counts, masks, options) are exact anywhere and stay."""

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(each.alias_info is not None for each in func._schema.returns):  # a view, or written into an argument
            return result
        return tree_map_only(torch.Tensor, _shake, result)


def _shake(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype != torch.float32:
        return tensor
    signs = 1.0 - 2.0 * (torch.arange(tensor.numel(), dtype=torch.float32) % 2).reshape(tensor.shape)
    is_rounded = tensor != tensor.to(torch.bfloat16).to(torch.float32)
    return torch.where(is_rounded, tensor * (1.0 + signs * torch.finfo(torch.float32).eps), tensor)


def compute_golden() -> tuple[dict[str, NDArray[np.generic]], dict[str, object]]:
    """All arrays by name, and the manifest."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)  # peers build scalars and masks without naming a type
    torch.manual_seed(0)
    from peers.trl_cases import trl_cases
    from peers.verl_cases import verl_cases

    batches = {name: make() for name, make in BATCHES.items()}
    arrays: dict[str, NDArray[np.generic]] = {
        f"batch/{name}:{key}": array for name, batch in batches.items() for key, array in batch.arrays().items()
    }
    entries: dict[str, object] = {}
    cases = [*verl_cases(batches), *trl_cases(batches)]
    with ShakeFloat32():
        shaken = {case.name: case.outputs for case in (*verl_cases(batches), *trl_cases(batches))}
    for case in cases:
        if case.name in entries:
            raise ValueError(f"two cases are named {case.name!r}")
        entries[case.name] = {
            "peer": case.name.split("/")[0],
            "function": case.function,
            "batch": case.batch,
            "options": dict(case.options),
            "inputs": dict(case.inputs),
            "outputs": sorted(case.outputs),
            "float32": sorted(
                key for key, array in case.outputs.items() if not is_same(array, shaken[case.name][key], rounds=False)
            ),
        }
        for key, array in case.outputs.items():
            if not np.isfinite(array).all():
                raise ValueError(f"{case.name}: output {key!r} is not finite")
            arrays[f"{case.name}:{key}"] = array
    versions = {name: importlib.metadata.version(name) for name in (*PEERS, "torch", "numpy")}
    return arrays, {"versions": versions, "cases": entries}


def compare(arrays: dict[str, NDArray[np.generic]], manifest: dict[str, object], folder: Path) -> list[str]:
    """What differs from the files in `folder`; rounding in the format of a case's maker does not count."""
    with np.load(folder / "golden.npz", allow_pickle=False) as file:
        committed = {key: file[key] for key in file.files}
    committed_manifest = json.loads((folder / "golden.json").read_text())
    differences = [
        f"{key}: only {'recomputed' if key in arrays else 'committed'}" for key in arrays.keys() ^ committed.keys()
    ]
    if committed_manifest["cases"] != json.loads(json.dumps(manifest["cases"])):
        differences.append("golden.json: cases differ")
    for peer in PEERS:
        if committed_manifest["versions"][peer] != manifest["versions"][peer]:  # type: ignore[index]
            differences.append(f"{peer}: committed numbers are of {committed_manifest['versions'][peer]}")
    for key in arrays.keys() & committed.keys():
        case, _, output = key.rpartition(":")
        rounds = output in committed_manifest["cases"].get(case, {}).get("float32", ())
        if not is_same(arrays[key], committed[key], rounds=rounds):
            differences.append(f"{key}: numbers differ")
    return sorted(differences)


def is_same(found: NDArray[np.generic], committed: NDArray[np.generic], *, rounds: bool) -> bool:
    """Whether two arrays are equal up to rounding: that of float32 where it `rounds` so, else that of float64."""
    if found.shape != committed.shape:
        return False
    if not rounds:
        return bool(np.allclose(found, committed, rtol=1e-9, atol=1e-12))
    unit = float(np.finfo(np.float32).eps) * float(np.abs(committed).max())
    return bool(np.allclose(found, committed, rtol=0.0, atol=FLOAT32_ULPS * unit))


def main() -> int:
    """Write, or with --check compare."""
    parser = argparse.ArgumentParser(description="Numbers of public implementations for Turnwise's agreement tests.")
    parser.add_argument("--check", action="store_true", help="compare with the committed files instead of writing them")
    check = parser.parse_args().check
    arrays, manifest = compute_golden()
    if check:
        differences = compare(arrays, manifest, FOLDER)
        sys.stdout.write("\n".join(differences) + "\n" if differences else f"{len(manifest['cases'])} cases agree\n")  # type: ignore[arg-type]
        return bool(differences)
    FOLDER.mkdir(exist_ok=True)
    np.savez_compressed(FOLDER / "golden.npz", **arrays)  # type: ignore[arg-type]
    (FOLDER / "golden.json").write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    sys.stdout.write(f"{len(manifest['cases'])} cases, {(FOLDER / 'golden.npz').stat().st_size} bytes\n")  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    sys.exit(main())
