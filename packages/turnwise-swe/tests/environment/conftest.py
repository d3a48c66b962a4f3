"""A library on disk with one tiny repository, and a file of instances of it. Made once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny

from turnwise.core.errors import SandboxError
from turnwise_sandbox import LocalSandbox
from turnwise_sandbox import errors as sandbox_errors
from turnwise_swe.environment.family import Swe
from turnwise_swe.repositories.baseline import measure_baseline
from turnwise_swe.repositories.instance import write_instances
from turnwise_swe.repositories.library import _separability_file
from turnwise_swe.repositories.repository import Baseline
from turnwise_swe.repositories.separability import Separability, measure_separability
from turnwise_swe.repositories.sources import hash_tree
from turnwise_swe.repositories.testing import Suite

SOURCES = ("src/sums",)
INSTANCE = replace(tiny.INSTANCE, issue="Sums are wrong.")
OTHER = replace(INSTANCE, instance_id="other-1", repository="other==1.0", issue="Other sums are wrong.")


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library; the same tree twice, as `sums` and as `other`."""
    folder = tmp_path_factory.mktemp("library")
    site_packages = folder / "environments" / "e"
    site_packages.mkdir(parents=True)
    tiny.copy_pytest(site_packages)
    tree = tiny.write_tree(folder / "new", {path: text for path, text in tiny.FILES.items() if path != "PKG-INFO"})
    digest = hash_tree(tree)
    (folder / "trees").mkdir()
    tree = tree.rename(folder / "trees" / digest)

    suite = Suite(site_packages=site_packages, import_folders=("src",))

    async def measure(sandbox: LocalSandbox) -> tuple[Baseline, Separability]:
        baseline = await measure_baseline(sandbox, tree, suite, name="sums==1.0", source_folders=SOURCES, left_out={})
        return baseline, await measure_separability(sandbox, tiny.build_repository(tree, site_packages, baseline))

    try:
        baseline, separability = tiny.in_sandbox(measure)
    except (SandboxError, sandbox_errors.SandboxError) as error:
        pytest.skip(f"no sandbox here: {error}")
    write_json(_separability_file("b", folder), separability.to_row())
    write_json(folder / "baselines" / "b.json", baseline.to_row())
    for name in ("sums", "other"):
        origin: dict[str, Any] = {
            "name": name,
            "version": "1.0",
            "digest": digest,
            "requires": [],
            "source_folders": SOURCES,
        }
        rest = {"plugins": [], "options": [], "left_out": [], "network": "none"}
        write_json(folder / f"{name}==1.0.json", {**origin, **rest, "site_packages": "e", "baseline": "b"})
    return folder


@pytest.fixture(scope="session")
def arguments(library: Path) -> dict[str, Any]:
    """Arguments of a family: the bug of `sums` trains, that of `other` is held out."""
    write_instances(library / "bugs.jsonl", [INSTANCE, OTHER])
    return {
        "instances": str(library / "bugs.jsonl"),
        "library": str(library),
        "heldout": ["other"],
        "command_s": 60.0,
        "sandbox_args": {"num_slots": 2},
    }


@pytest.fixture(scope="session")
def family(arguments: dict[str, Any]) -> Swe:
    """The family with its sandbox, which all tests share."""
    return Swe(**arguments)
