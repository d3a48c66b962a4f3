"""Source trees: fetched by name, unpacked from a source distribution or copied from a folder, and their layout."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path, PurePosixPath

from turnwise.core.errors import ConfigError, DataError
from turnwise_swe.repositories.packages import Package

DOWNLOAD_S = 600.0
"""Deadline of one run of pip."""
MAX_TREE_BYTES, MAX_TREE_FILES = 256 << 20, 20_000
_NO_SOURCES = {
    *("bench", "benchmark", "benchmarks", "build", "ci", "dev", "dist", "doc", "docs", "example", "examples"),
    *("requirements", "script", "scripts", "test", "tests", "testing", "tools", "venv"),
}
"""Top-level folders of a tree that do not belong to the package."""
_NO_MODULES = {"conf", "conftest", "fabfile", "noxfile", "prebuild", "run_tests", "runtests", "setup", "tasks"}
"""Top-level modules that do not belong to it either."""
_NOT_COPIED = {".git", ".hg", ".hypothesis", ".mypy_cache", ".nox", ".pytest_cache", ".tox", ".venv", "__pycache__"}


_FREE_SPACE = "free space on the disks of XDG_CACHE_HOME and TMPDIR"
_REMEDIES = {
    "No space left on device": _FREE_SPACE,
    "Disk quota exceeded": _FREE_SPACE,
    "Permission denied": "make the folder writable, or set XDG_CACHE_HOME to another one",
    "Read-only file system": "set XDG_CACHE_HOME to a folder that can be written",
    "No module named pip": "install pip for this interpreter",
    "THESE PACKAGES DO NOT MATCH THE HASHES": "the file is not the one that was pinned: check the index",
}
"""Remedies, by a text that pip's error contains."""
_CHECK_INDEX = "check the connection and the index (`pip config list`)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The metadata of a tree."""

    name: str
    version: str
    requires: tuple[str, ...]
    """Requirements of the package, as pip spells them, without its optional extras."""


def fetch_sdist(package: Package, folder: Path) -> Path:
    """Download the package's source distribution into `folder` with pip, which checks the SHA-256 of the manifest
    before it does anything with the file. Raises ConfigError with pip's own reason."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package.key} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    arguments = ["download", "--no-deps", "--no-binary", ":all:", "--require-hashes", "-r", str(requirements)]
    run_pip([*arguments, "--dest", str(folder)], f"download {package.key}")
    return next(path for path in folder.iterdir() if path.name.endswith((".tar.gz", ".zip")))


def run_pip(arguments: Iterable[str], what: str) -> None:
    """Run pip. Raises ConfigError saying `what` pip could not do, and why."""
    command = [sys.executable, "-m", "pip", *arguments, "--no-input", "--disable-pip-version-check", "--quiet"]
    try:
        # The users of sandboxed programs must be able to read what is installed.
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_S, check=False, umask=0o022)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"pip did not {what} within {DOWNLOAD_S:.0f} s; try again") from None
    if done.returncode:
        raise ConfigError(describe_failure(done.stderr, what))


def describe_failure(said: str, what: str) -> str:
    """Why pip could not do `what`, in one line with the remedy; `said` is its standard error."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if "ERROR" in line or "No module" in line), "")
    reason = (reason or (lines or ["it gave no reason"])[-1]).removeprefix("ERROR: ")
    remedy = next((remedy for mark, remedy in _REMEDIES.items() if mark in said), _CHECK_INDEX)
    return f"pip cannot {what}: {reason}; {remedy}"


def hash_file(path: Path) -> str:
    """SHA-256 of a file. Raises DataError if it cannot be read."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as cause:
        raise DataError(f"cannot read {path}: {cause.strerror}") from cause


def hash_tree(root: Path) -> str:
    """SHA-256 of the paths and contents of all files, sorted by path."""
    digest = hashlib.sha256()
    for path in tree_files(root):
        content = (root / path).read_bytes()
        digest.update(f"{path}\0{len(content)}\0".encode("utf-8", "surrogateescape") + content)
    return digest.hexdigest()


def tree_files(root: Path) -> list[str]:
    """Relative paths of all files, with forward slashes, sorted."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def unpack_sdist(sdist: Path, root: Path) -> None:
    """Write the files of a `.tar.gz` source distribution, without its top folder, into the empty folder `root`.

    Raises DataError for an archive that is broken or too large, and for one with links, devices or paths that leave it.
    """
    total = 0
    try:
        with tarfile.open(sdist, "r:gz") as archive:
            for number, member in enumerate(archive):
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts or "\\" in member.name:
                    raise DataError(
                        f"{sdist.name} contains {member.name!r}, which leaves its folder; it was not unpacked"
                    )
                if not (member.isfile() or member.isdir()):
                    raise DataError(
                        f"{sdist.name} contains {member.name!r}, which is not a regular file; it was not unpacked"
                    )
                total += member.size
                if total > MAX_TREE_BYTES or number >= MAX_TREE_FILES:
                    raise DataError(
                        f"{sdist.name} contains more than {MAX_TREE_BYTES >> 20} MiB or {MAX_TREE_FILES} files, which "
                        "is too large"
                    )
                if member.isfile() and len(path.parts) > 1:
                    _write(root.joinpath(*path.parts[1:]), archive, member)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as cause:
        raise DataError(f"{sdist} is not a complete .tar.gz source distribution: {cause}") from cause
    if not any(root.iterdir()):
        raise DataError(f"{sdist.name} has no files in a top folder, so it is not a source distribution")


def _write(target: Path, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    source = archive.extractfile(member)
    assert source is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        shutil.copyfileobj(source, out)
    target.chmod(0o755 if member.mode & 0o100 else 0o644)


def copy_tree(folder: Path, root: Path) -> None:
    """Copy a folder's files, without version control, caches and environments, into the empty folder `root`.

    Raises DataError for a link and for more than `MAX_TREE_BYTES`.
    """
    total = 0
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_COPIED]
        for name in (*folders, *files):
            path = Path(here, name)
            if path.is_symlink():
                raise DataError(f"{path} is a link; a repository may contain only regular files")
        for name in files:
            path = Path(here, name)
            total += path.stat().st_size
            if total > MAX_TREE_BYTES:
                raise DataError(f"{folder} contains more than {MAX_TREE_BYTES >> 20} MiB; name a smaller folder")
            target = root / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            shutil.copymode(path, target)


def describe(root: Path, *, origin: str) -> Description:
    """Name, version and requirements of a tree, from PKG-INFO or pyproject.toml. No code of the tree is run.

    `origin` names the tree in errors. Raises DataError if it has neither.
    """
    information = root / "PKG-INFO"
    if information.is_file():
        message = Parser().parsestr(information.read_text(encoding="utf-8", errors="replace"), headersonly=True)
        requires = tuple(text for text in message.get_all("Requires-Dist", []) if "extra ==" not in text)
        name, version = message.get("Name"), message.get("Version")
        if name and version:
            return Description(name=_plain_name(name), version=version, requires=requires)
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return Description(
            name=_plain_name(project["name"]),
            version=str(project.get("version", "0")),
            requires=tuple(map(str, project.get("dependencies", ()))),
        )
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise DataError(f"{origin} has neither PKG-INFO nor a pyproject.toml with a project name; add one") from cause


def _plain_name(name: str) -> str:
    plain = re.sub(r"[-_.]+", "-", name).lower()
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", plain):
        raise DataError(f"the package's name is {name!r}, which is not a valid package name")
    return plain


def find_test_files(root: Path) -> tuple[str, ...]:
    """Files of tests and their data: everything in a folder `test` or `tests`, and modules named as tests."""
    return tuple(path for path in tree_files(root) if _is_test(PurePosixPath(path)))


def _is_test(path: PurePosixPath) -> bool:
    is_named = path.name == "conftest.py" or re.fullmatch(r"test_.*\.py|.*_tests?\.py", path.name) is not None
    return is_named or bool({"test", "tests"} & set(path.parts[:-1]))


def find_sources(root: Path, *, origin: str) -> tuple[str, ...]:
    """Folders and modules of the package: packages below `src`, else packages at the top of the tree, else modules
    there.

    `origin` names the tree in errors. Raises DataError if there is none.
    """
    base = root / "src" if (root / "src").is_dir() else root
    prefix = "src/" if base != root else ""
    sources = [f"{prefix}{name}" for name in _packages(base)] or [f"{prefix}{name}" for name in _modules(base)]
    if not sources:
        raise DataError(
            f"{origin} has no package or module at the top level or in src; name the folder that contains it"
        )
    return tuple(sources)


def _packages(base: Path) -> Iterator[str]:
    for folder in sorted(path for path in base.iterdir() if path.is_dir()):
        if folder.name.isidentifier() and folder.name not in _NO_SOURCES and (folder / "__init__.py").is_file():
            yield folder.name


def _modules(base: Path) -> Iterator[str]:
    for path in sorted(base.glob("*.py")):
        if path.stem.isidentifier() and path.stem not in _NO_MODULES and not _is_test(PurePosixPath(path.name)):
            yield path.name
