"""Writes tests/agreement/golden.npz and golden.json: what the peers give for the batches of `batches.py`.

    .venv-peers/bin/python -m peers.make_golden            writes both files
    .venv-peers/bin/python -m peers.make_golden --check    recomputes and compares with the committed files

The manifest names, per case, the peer, its version, the function, its options, the batch and the arrays it gave. Arrays
lie in the npz as `<case>:<output>`, the batches' as `batch/<name>:<field>`."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from peers.batches import BATCHES

FOLDER = Path(__file__).parent.parent / "tests" / "agreement"
PEERS = ("verl", "trl")


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
    for case in [*verl_cases(batches), *trl_cases(batches)]:
        if case.name in entries:
            raise ValueError(f"two cases are named {case.name!r}")
        entries[case.name] = {
            "peer": case.name.split("/")[0],
            "function": case.function,
            "batch": case.batch,
            "options": dict(case.options),
            "inputs": dict(case.inputs),
            "outputs": sorted(case.outputs),
        }
        for key, array in case.outputs.items():
            if not np.isfinite(array).all():
                raise ValueError(f"{case.name}: output {key!r} is not finite")
            arrays[f"{case.name}:{key}"] = array
    versions = {name: importlib.metadata.version(name) for name in (*PEERS, "torch", "numpy")}
    return arrays, {"versions": versions, "cases": entries}


def compare(arrays: dict[str, NDArray[np.generic]], manifest: dict[str, object], folder: Path) -> list[str]:
    """What differs from the files in `folder`; rounding of the last digits does not count."""
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
        if arrays[key].shape != committed[key].shape or not np.allclose(
            arrays[key], committed[key], rtol=1e-9, atol=1e-12
        ):
            differences.append(f"{key}: numbers differ")
    return sorted(differences)


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
