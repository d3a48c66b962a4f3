"""The repositories on this machine: built once, cached by content, loaded by name.

    trees/DIGEST/            pristine source trees; DIGEST is that of their files
    environments/DIGEST/     installed dependencies; DIGEST is that of what was asked for
    baselines/DIGEST.json    measured suites; DIGEST is that of tree, environment and settings
    separable/DIGEST.json    which of their tests run apart from the package; DIGEST is that of the baseline
    NAME==VERSION.json       which of them make the repository

Every part is written beside its place and renamed into it, under a lock, so that it is either complete or absent,
concurrent commands build it once, and a command that was stopped resumes from the parts that exist.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnwise.core.errors import ConfigError, DataError, StoreError, TurnwiseError
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.types import Network, Sandbox
from turnwise_swe.repositories import sources
from turnwise_swe.repositories.baseline import measure_baseline
from turnwise_swe.repositories.packages import Package, find_package, load_packages
from turnwise_swe.repositories.repository import Baseline, Repository, check_key, read_baseline
from turnwise_swe.repositories.separability import Separability, measure_separability, read_separability
from turnwise_swe.repositories.testing import Suite

PYTEST = "pytest==9.2.0"
"""The sandbox limits of every suite."""
BASELINE_FORMAT = 2
"""Version of the measurement: raise it when measuring a suite again would give another baseline."""
SEPARABLE_FORMAT = 1
"""Version of the separation: raise it when suites would run apart in another way."""
LOCK_S = 3600.0
"""How long to wait for another command that is building the same part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a tree comes from, and what its suite needs."""

    name: str
    version: str
    digest: str
    requires: tuple[str, ...]
    source_folders: tuple[str, ...]
    plugins: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    network: Network = "none"

    @property
    def key(self) -> str:
        """`name==version`."""
        return f"{self.name}=={self.version}"


def default_library() -> Path:
    """`$XDG_CACHE_HOME/turnwise/repositories`, or below `~/.cache`."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "turnwise" / "repositories"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the suite of a user's own package needs, beyond the package's requirements."""

    requires: tuple[str, ...] = ()
    """Requirements, as pip spells them."""
    plugins: tuple[str, ...] = ()
    """Modules of pytest plugins."""
    options: tuple[str, ...] = ()
    """Arguments of pytest."""


async def add_repository(sandbox: LocalSandbox, what: str, library: Path, needs: Needs | None = None) -> Repository:
    """Make the missing parts of the repository for `NAME==VERSION` of the manifest, a source distribution (`.tar.gz`)
    or a folder. The manifest already lists what the suites of its packages need.

    Raises ConfigError for a name that the manifest does not have and when pip fails, DataError for a tree that cannot
    be used, StoreError if the cache cannot be written, SandboxError if the sandbox fails.
    """
    origin = _make_tree(what, library)
    if needs not in (None, Needs()):
        if any(package.key == origin.key for package in load_packages()):
            raise ConfigError(
                f"{origin.key} already defines what its suite needs; leave out --requires, --plugin, --option"
            )
        origin = replace(
            origin,
            requires=(*origin.requires, *needs.requires),
            plugins=(*origin.plugins, *needs.plugins),
            options=(*origin.options, *needs.options),
        )
    site_packages = _make_environment(origin, library)
    baseline = await _make_baseline(sandbox, origin, site_packages, library)
    row = {field: getattr(origin, field) for field in Origin.__dataclass_fields__}
    row |= {"site_packages": site_packages.name, "baseline": _baseline_digest(origin, site_packages.name)}
    _write_json(library / f"{origin.key}.json", row)
    repository = _assemble(origin, site_packages, baseline, library)
    separability = await _make_separability(sandbox, repository, row["baseline"], library)
    return replace(repository, apart=separability.durations)


def load_separability(key: str, library: Path) -> Separability | None:
    """Which tests of the repository can run apart, and why the others cannot; None if this was not measured.

    Raises as `load_repository`.
    """
    check_key(key)
    row = _read_json(library / f"{key}.json") or {}
    measured = _read_json(_separability_file(str(row.get("baseline")), library))
    try:
        return None if measured is None else read_separability(measured)
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise DataError(
            f"the list of tests of {key} that run separately is damaged ({cause}); delete separable/ and add the "
            "repository again"
        ) from cause


def load_repository(key: str, library: Path) -> Repository:
    """The repository `name==version`. Raises ConfigError if it was not added, DataError if its files are damaged."""
    check_key(key)
    row = _read_json(library / f"{key}.json")
    if row is None:
        raise ConfigError(f"repository {key} is not on this machine; run `turnwise repos add {key}`")
    try:
        fields = {field: row[field] for field in Origin.__dataclass_fields__}
        texts: dict[str, Any] = {
            name: value if isinstance(value, str) else tuple(value) for name, value in fields.items()
        }
        texts["left_out"] = tuple((path, reason) for path, reason in fields["left_out"])
        origin = Origin(**texts)
        site_packages = library / "environments" / row["site_packages"]
        baseline = read_baseline(_read_json(library / "baselines" / f"{row['baseline']}.json") or {})
    except (KeyError, TypeError, ValueError) as cause:
        raise DataError(f"{library / f'{key}.json'} is damaged ({cause}); delete it and add {key} again") from cause
    if not (_tree_folder(library, origin.digest).is_dir() and site_packages.is_dir()):
        raise DataError(f"repository {key} lacks its tree or its environment; run `turnwise repos add {key}` again")
    separability = load_separability(key, library)
    repository = _assemble(origin, site_packages, baseline, library)
    return repository if separability is None else replace(repository, apart=separability.durations)


def list_repositories(library: Path) -> list[str]:
    """`name==version` of each repository on this machine, sorted."""
    return sorted(path.name.removesuffix(".json") for path in library.glob("*==*.json"))


def _assemble(origin: Origin, site_packages: Path, baseline: Baseline, library: Path) -> Repository:
    root = _tree_folder(library, origin.digest)
    of_tests = {test.split("::")[0] for test in baseline.outcomes}
    return Repository(
        name=origin.name,
        version=origin.version,
        digest=origin.digest,
        root=root,
        site_packages=site_packages,
        source_folders=origin.source_folders,
        test_files=tuple(sorted({*sources.find_test_files(root), *of_tests})),
        baseline=baseline,
        plugins=origin.plugins,
        options=origin.options,
        network=origin.network,
    )


def _make_tree(what: str, library: Path) -> Origin:
    """The tree of `what`, and where it comes from."""
    path = Path(what)
    with tempfile.TemporaryDirectory(prefix="turnwise-sdist-") as scratch:
        if path.is_dir():
            return _add_tree(library, lambda root: sources.copy_tree(path, root), str(path), None)
        if path.is_file():
            sha256 = sources.hash_file(path)
            package = next((package for package in load_packages() if package.sha256 == sha256), None)
            return _add_tree(library, lambda root: sources.unpack_sdist(path, root), path.name, package)
        if "/" in what or what.endswith(".gz"):
            raise ConfigError(f"{what} does not exist; name a folder, a .tar.gz source distribution or name==version")
        package = find_package(what)
        with contextlib.suppress(ConfigError, DataError):
            return _read_origin(package, library)
        sdist = sources.fetch_sdist(package, Path(scratch))
        if sources.hash_file(sdist) != package.sha256:
            raise DataError(f"{sdist.name} does not have the manifest's SHA-256 {package.sha256}; it is not used")
        return _add_tree(library, lambda root: sources.unpack_sdist(sdist, root), package.key, package)


def _add_tree(library: Path, fill: Callable[[Path], None], origin: str, package: Package | None) -> Origin:
    with _temporary_folder(library / "trees") as root:
        fill(root)
        digest = sources.hash_tree(root)
        with _lock(library, f"tree-{digest}"):
            if not (target := _tree_folder(library, digest)).is_dir():
                os.replace(root, target)
    if package is not None:
        made = _origin_of(package, digest, target)
        _write_json(library / "sdists" / f"{package.sha256}.json", {"tree": digest})
        return made
    description = sources.describe(target, origin=origin)
    return Origin(
        name=description.name,
        version=description.version,
        digest=digest,
        requires=description.requires,
        source_folders=sources.find_sources(target, origin=origin),
    )


def _read_origin(package: Package, library: Path) -> Origin:
    """The origin of a package whose tree exists already. Raises ConfigError otherwise."""
    row = _read_json(library / "sdists" / f"{package.sha256}.json")
    if row is None or not (root := _tree_folder(library, str(row.get("tree")))).is_dir():
        raise ConfigError(f"the tree of {package.key} is not on this machine")
    return _origin_of(package, root.name, root)


def _origin_of(package: Package, digest: str, root: Path) -> Origin:
    return Origin(
        name=package.name,
        version=package.version,
        digest=digest,
        requires=package.requires,
        source_folders=package.sources or sources.find_sources(root, origin=package.key),
        plugins=package.plugins,
        options=package.options,
        left_out=package.left_out,
        network=package.network,
    )


def _make_environment(origin: Origin, library: Path) -> Path:
    """The folder with the package's metadata and everything that the package and its tests import. Repositories with
    the same needs share the files."""

    def fill(folder: Path) -> None:
        shutil.copytree(
            _install([PYTEST, *origin.requires], library), folder, copy_function=os.link, dirs_exist_ok=True
        )
        _remove_distribution(folder, origin.name)
        _write_metadata(folder, origin)

    return _make_folder(library, [origin.key, [PYTEST, *origin.requires]], fill)


def _install(wanted: list[str], library: Path) -> Path:
    """The folder with these requirements. pip installs wheels only, so that nothing is built."""

    def fill(folder: Path) -> None:
        arguments = ["install", "--only-binary", ":all:", "--target", str(folder), *wanted]
        sources.run_pip(arguments, f"install {', '.join(wanted)}")

    return _make_folder(library, [wanted], fill)


def _make_folder(library: Path, names: list[Any], fill: Callable[[Path], object]) -> Path:
    """The folder of these names for this interpreter, filled unless it exists."""
    digest = _hash_json([*names, sys.version_info[:3], sys.platform])
    target = library / "environments" / digest
    with _lock(library, f"environment-{digest}"):
        if not target.is_dir():
            with _temporary_folder(library / "environments") as folder:
                fill(folder)
                os.replace(folder, target)
    return target


def _remove_distribution(folder: Path, name: str) -> None:
    """Remove an installed copy of the package itself, which one of its requirements may have brought."""
    for information in folder.glob("*.dist-info"):
        if information.name.split("-")[0].lower().replace("_", "-") == name:
            for line in (information / "RECORD").read_text(encoding="utf-8").splitlines():
                (folder / line.split(",")[0]).unlink(missing_ok=True)
            shutil.rmtree(information, ignore_errors=True)


def _write_metadata(folder: Path, origin: Origin) -> None:
    """Write metadata so that `importlib.metadata` finds the version of the package, which is imported from its tree."""
    information = folder / f"{origin.name.replace('-', '_')}-{origin.version}.dist-info"
    information.mkdir()
    text = f"Metadata-Version: 2.1\nName: {origin.name}\nVersion: {origin.version}\n"
    (information / "METADATA").write_text(text, encoding="utf-8")


async def _make_baseline(sandbox: Sandbox, origin: Origin, site_packages: Path, library: Path) -> Baseline:
    file = library / "baselines" / f"{_baseline_digest(origin, site_packages.name)}.json"
    with _lock(library, f"baseline-{file.stem}"):
        if (row := _read_json(file)) is not None:
            return read_baseline(row)
        repository = _assemble(origin, site_packages, Baseline(outcomes={}), library)
        suite = Suite(
            site_packages=site_packages,
            import_folders=repository.import_folders,
            plugins=origin.plugins,
            options=origin.options,
            network=origin.network,
        )
        baseline = await measure_baseline(
            sandbox,
            repository.root,
            suite,
            name=origin.key,
            source_folders=origin.source_folders,
            left_out=dict(origin.left_out),
        )
        _write_json(file, baseline.to_row())
    return baseline


async def _make_separability(
    sandbox: LocalSandbox, repository: Repository, baseline: str, library: Path
) -> Separability:
    file = _separability_file(baseline, library)
    with _lock(library, f"separable-{file.stem}"):
        if (row := _read_json(file)) is not None:
            return read_separability(row)
        separability = await measure_separability(sandbox, repository)
        _write_json(file, separability.to_row())
    return separability


def _separability_file(baseline: str, library: Path) -> Path:
    return library / "separable" / f"{_hash_json([baseline, SEPARABLE_FORMAT])}.json"


def _baseline_digest(origin: Origin, environment: str) -> str:
    settings = [origin.source_folders, origin.plugins, origin.options, origin.left_out, origin.network]
    return _hash_json([origin.digest, environment, settings, BASELINE_FORMAT])


def _hash_json(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("ascii")).hexdigest()


def _tree_folder(library: Path, digest: str) -> Path:
    return library / "trees" / digest


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an OSError into a StoreError that names `path`."""
    try:
        yield
    except TurnwiseError:
        raise
    except OSError as cause:
        raise StoreError(f"cannot write {path}: {cause.strerror}; free disk space or set XDG_CACHE_HOME") from cause


@contextlib.contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    """A temporary folder beside its later place, which is removed unless it was renamed. Raises StoreError."""
    with _writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        folder = Path(tempfile.mkdtemp(prefix=f".new-{os.getpid()}-", dir=parent))
        try:
            folder.chmod(0o755)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Remove the temporary folders of commands that were killed."""
    for folder in parent.glob(".new-*-*"):
        if not Path("/proc", folder.name.split("-")[1]).exists():
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _lock(library: Path, name: str) -> Iterator[None]:
    """Let one process at a time build a part; the lock ends with its process. Raises StoreError if another process
    holds it longer than `LOCK_S`."""
    with _writing(library):
        (library / "locks").mkdir(parents=True, exist_ok=True)
        with (library / "locks" / name).open("w") as file:
            deadline = time.monotonic() + LOCK_S
            while not _try_lock(file.fileno()):
                if time.monotonic() > deadline:
                    raise StoreError(f"another command has held {file.name} for {LOCK_S:.0f} s; stop it and try again")
                time.sleep(0.1)
            yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_json(path: Path, value: Any) -> None:
    """Write a file atomically. Raises StoreError."""
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(value) + "\n", encoding="utf-8")
        os.replace(temporary, path)


def _read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is no such file. Raises DataError if it is damaged."""
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as cause:
        raise DataError(f"{path} is damaged ({cause}); delete it and add the repository again") from cause
    if not isinstance(row, dict):
        raise DataError(f"{path} is damaged; delete it and add the repository again")
    return row
