"""A library on disk with one tiny repository, and a file of instances of it. Made once."""

from __future__ import annotations

import asyncio
import compileall
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest
from project import FILES, INSTANCE, OTHER

from turnwise.core.errors import SandboxError
from turnwise.environments.swe.family import Swe
from turnwise.repositories.baseline import measure_baseline
from turnwise.repositories.instance import write_instances
from turnwise.repositories.sources import hash_tree
from turnwise.repositories.testing import Suite
from turnwise_sandbox import LocalSandbox
from turnwise_sandbox import errors as sandbox_errors

SOURCES = ("src/sums",)


def copy_pytest(folder: Path) -> None:
    """Fill a folder with pytest and what it imports, for every user to read."""
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        for file in importlib.metadata.files(name) or ():
            if file.suffix == ".py" and ".." not in file.parts:
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_binary())
    folder.chmod(0o755)
    for name in ("pytest", "_pytest", "pluggy", "iniconfig"):
        compileall.compile_dir(folder / name, quiet=1)


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library; the same tree twice, as `sums` and as `other`."""
    folder = tmp_path_factory.mktemp("library")
    site_packages, tree = folder / "environments" / "e", folder / "new"
    copy_pytest(site_packages)
    for path, text in FILES.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    digest = hash_tree(tree)
    (folder / "trees").mkdir()
    tree = tree.rename(folder / "trees" / digest)

    async def measure() -> Any:
        suite = Suite(site_packages=site_packages, import_folders=("src",))
        async with LocalSandbox(num_slots=1) as sandbox:
            return await measure_baseline(sandbox, tree, suite, name="sums==1.0", source_folders=SOURCES, left_out={})

    try:
        baseline = asyncio.run(measure())
    except (SandboxError, sandbox_errors.SandboxError) as error:
        pytest.skip(f"no sandbox here: {error}")
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
