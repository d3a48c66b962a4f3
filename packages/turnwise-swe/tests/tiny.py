"""A tiny package and its suite, with one bug, for tests that run the sandbox."""

from __future__ import annotations

import asyncio
import compileall
import importlib.metadata
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from turnwise_sandbox import LocalSandbox
from turnwise_swe.repositories.diffs import make_diff
from turnwise_swe.repositories.instance import Instance
from turnwise_swe.repositories.repository import Baseline, Repository
from turnwise_swe.repositories.sources import find_sources, find_test_files, hash_tree

T = TypeVar("T")

CORE = '''"""Small sums."""


def add(a, b):
    return a + b


def scale(values, factor):
    return [value * factor for value in values]


class Total:
    def __init__(self):
        self.value = 0

    def take(self, value):
        self.value = add(self.value, value)
        return self
'''
TESTS = """import pytest

from sums.core import Total, add, scale


@pytest.mark.parametrize("a", [1, 2])
def test_add(a):
    assert add(a, 1) == a + 1


def test_total():
    assert Total().take(2).take(3).value == 5


def test_scale():
    assert scale([1, 2], 3) == [3, 6]


def test_scale_nothing():
    assert scale([], 3) == []
"""
FILES = {
    "pyproject.toml": '[project]\nname = "sums"\nversion = "1.0"\n\n[tool.pytest.ini_options]\ntestpaths = ["tests"]\n',
    "PKG-INFO": "Metadata-Version: 2.1\nName: sums\nVersion: 1.0\n",
    "src/sums/__init__.py": "from sums.core import add\n",
    "src/sums/core.py": CORE,
    "tests/test_core.py": TESTS,
    "tests/conftest.py": "",
}
ADDS = ("tests/test_core.py::test_add[1]", "tests/test_core.py::test_add[2]", "tests/test_core.py::test_total")
SCALES = ("tests/test_core.py::test_scale", "tests/test_core.py::test_scale_nothing")
BUGGY = CORE.replace("return a + b", "return a - b")
INSTANCE = Instance(
    instance_id="sums-1",
    repository="sums==1.0",
    patch=make_diff({"src/sums/core.py": CORE.encode()}, {"src/sums/core.py": BUGGY.encode()}),
    fail_to_pass=ADDS,
    pass_to_pass=SCALES,
)


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """Write the files into a folder."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


def build_repository(root: Path, site_packages: Path, baseline: Baseline) -> Repository:
    """A repository of a tree, with a given baseline."""
    return Repository(
        name="sums",
        version="1.0",
        digest=hash_tree(root),
        root=root,
        site_packages=site_packages,
        source_folders=find_sources(root, origin="sums"),
        test_files=find_test_files(root),
        baseline=baseline,
    )


def copy_pytest(folder: Path) -> Path:
    """Fill a folder with pytest and what it imports, from this environment, for every user to read."""
    folder.chmod(0o755)
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        for file in importlib.metadata.files(name) or ():
            if file.suffix == ".py" and ".." not in file.parts:
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_binary())
    for name in ("pytest", "_pytest", "pluggy", "iniconfig"):
        compileall.compile_dir(folder / name, quiet=1)
    return folder


def in_sandbox(work: Callable[[LocalSandbox], Awaitable[T]]) -> T:
    """The answer of `work`, which gets a sandbox of its own."""

    async def run() -> T:
        async with LocalSandbox(num_slots=1) as sandbox:
            return await work(sandbox)

    return asyncio.run(run())
