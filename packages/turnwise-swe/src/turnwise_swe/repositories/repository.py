"""A repository: a pristine source tree, its installed dependencies, and how its suite behaves before any bug."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise_sandbox.types import Network
from turnwise_swe.repositories.outcome import Outcome, read_outcome

CONFIGURATION = (
    *("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "setup.cfg", "setup.py"),
    *("tox.ini", "noxfile.py", "conftest.py", "sitecustomize.py", "usercustomize.py"),
)
"""Names of files that decide what a test run does. A patch never changes them, in any folder."""
LEFTOVERS = frozenset(
    {".pytest_cache", ".hypothesis", ".mypy_cache", ".ruff_cache", ".nox", ".tox", "__pycache__", ".coverage"}
)
"""Folders and files that test runs and linters leave behind."""
LOADED = (".pyc", ".pyo", ".pyd", ".so", ".pth", ".egg-link")
"""Suffixes of files that Python runs without visible source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The suite of a pristine tree: what is stable, and why the rest is left out."""

    outcomes: Mapping[str, Outcome]
    """Test id to outcome, for each test on which two runs (other hash seed, reversed order) agree. A test that does not
    pass is included only if it is skipped or fails as announced."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Test id, or path of a test file, to the reason it is left out."""
    durations: Mapping[str, float] = field(default_factory=dict)
    """Test id to seconds of real time, the shorter of two runs."""
    entered: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Test id to the functions of the source folders that the test calls, each as "path::qualified name"."""
    cpu_s: float = 0.0
    """Processor seconds of one run of the suite, including the start of the interpreter."""

    @property
    def passing(self) -> tuple[str, ...]:
        """Ids of the passing tests, in the order of the suite."""
        return tuple(test for test, outcome in self.outcomes.items() if outcome.status == "passed")

    def to_row(self) -> dict[str, Any]:
        """The baseline as JSON; each function's name is written only once."""
        functions = sorted(set().union(*self.entered.values()))
        index = {function: number for number, function in enumerate(functions)}
        return {
            "outcomes": {test: outcome.to_row() for test, outcome in self.outcomes.items()},
            "left_out": dict(self.left_out),
            "durations": dict(self.durations),
            "functions": functions,
            "entered": {test: sorted(index[function] for function in names) for test, names in self.entered.items()},
            "cpu_s": self.cpu_s,
        }


def read_baseline(row: Mapping[str, Any]) -> Baseline:
    """The baseline in a row of `Baseline.to_row`. Raises ValueError, KeyError or TypeError for anything else."""
    functions = row["functions"]
    return Baseline(
        outcomes={test: read_outcome(outcome) for test, outcome in row["outcomes"].items()},
        left_out=dict(row["left_out"]),
        durations=dict(row["durations"]),
        entered={test: frozenset(functions[number] for number in numbers) for test, numbers in row["entered"].items()},
        cpu_s=float(row["cpu_s"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A package whose suite has been measured. Everything it names on disk must be treated as read-only."""

    name: str
    version: str
    digest: str
    """SHA-256 of the tree's paths and contents."""
    root: Path
    """The pristine source tree, without git."""
    site_packages: Path
    """The folder with what the package and its tests import, without the package itself."""
    source_folders: tuple[str, ...]
    """Folders and single modules of the package, relative with forward slashes: `src/toolz`, `inflection.py`."""
    test_files: tuple[str, ...]
    """Files of the tests and their data, relative with forward slashes."""
    baseline: Baseline
    plugins: tuple[str, ...] = ()
    """Modules of the pytest plugins that the suite needs; no other is loaded."""
    options: tuple[str, ...] = ()
    """Arguments of pytest that the suite needs."""
    network: Network = "none"
    """"loopback" if the suite connects to itself."""
    apart: Mapping[str, float] = field(default_factory=dict)
    """Id of each test that passes apart from the package, to its seconds of real time there; empty if not measured."""

    @property
    def key(self) -> str:
        """`name==version`, as in instances."""
        return f"{self.name}=={self.version}"

    @property
    def import_folders(self) -> tuple[str, ...]:
        """Folders, relative to the root, to import the package from."""
        return tuple(dict.fromkeys(PurePosixPath(folder).parent.as_posix() for folder in self.source_folders))

    def is_protected(self, path: str) -> bool:
        """Whether a patch's version of the file is replaced by the pristine one before tests run: true for
        everything but source files of the package."""
        return is_protected(path, source_folders=self.source_folders, test_files=self.test_files)


def is_leftover(path: str) -> bool:
    """Whether the file was left behind by a test run, so that it does not count as an edit."""
    return not LEFTOVERS.isdisjoint(PurePosixPath(path).parts)


def is_protected(path: str, *, source_folders: Iterable[str], test_files: Iterable[str]) -> bool:
    """Whether a patch may not change `path`, relative with forward slashes.

    It may change what lies in a source folder, unless that is a test, data beside a test, settings of a test run, or a
    file that Python loads without source.
    """
    place = PurePosixPath(path)
    if place.is_absolute() or ".." in place.parts or "__pycache__" in place.parts:
        return True
    if place.name in CONFIGURATION or place.suffix in LOADED:
        return True
    tests = set(test_files)
    if path in tests or any(parent.as_posix() in _folders_of_tests(tests, source_folders) for parent in place.parents):
        return True
    return not any(place == source or source in place.parents for source in map(PurePosixPath, source_folders))


def _folders_of_tests(test_files: set[str], source_folders: Iterable[str]) -> set[str]:
    """Folders that hold tests, except source folders with tests beside their modules."""
    folders = {PurePosixPath(path).parent.as_posix() for path in test_files}
    roots = [PurePosixPath(source) for source in source_folders]
    return {
        folder
        for folder in folders
        if folder != "." and not any(PurePosixPath(folder) in (root, *root.parents) for root in roots)
    }


def check_key(text: str) -> tuple[str, str]:
    """Split `name==version`. Raises ConfigError for anything else."""
    name, separator, version = text.partition("==")
    if not (separator and name and version) or "/" in text:
        raise ConfigError(f"repository {text!r} is not of the form name==version")
    return name, version
