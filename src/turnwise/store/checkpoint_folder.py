"""Checkpoint folders that are complete or absent. Training decides what they contain.

checkpoints/step_000012/           whole: written aside, synced, renamed
checkpoints/step_000012/manifest.json    size and SHA-256 of every other file
checkpoints/step_000012/policies/NAME/   a further learner's, of the same form
checkpoints/.step_000012.tmp/      being written or deleted; worthless after a crash
checkpoints/.step_000012.old/      set aside while a new one of the same step takes its name
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from turnwise.core.errors import CheckpointError, StoreError, boundary
from turnwise.store.run_folder import disk_error, sync

MANIFEST = "manifest.json"
POLICIES = "policies"
"""Folder in a checkpoint for learners other than the first, by name."""


def policy_folder(checkpoint: Path, learner: str) -> Path:
    """Return the folder of a learner in a checkpoint; the checkpoint itself for the first learner, which has no
    name."""
    return checkpoint / POLICIES / learner if learner else checkpoint


def whole_folder(path: Path) -> Path:
    """Return the checkpoint of the step that contains this learner's folder."""
    return path.parent.parent if path.parent.name == POLICIES else path


@contextmanager
def checkpoint_writer(run: Path, step: int) -> Iterator[Path]:
    """Yield a temporary folder to fill; on success it becomes `checkpoints/step_<step>` with a manifest, in one rename.

    On any failure, Ctrl-C included, the temporary folder is removed and the previous checkpoint stays. An error from
    the disk or from a library that writes becomes StoreError; Turnwise's own errors pass unchanged.
    """
    target = _path(run, step)
    temporary = _aside(target, "tmp")
    try:
        with boundary(
            StoreError,
            f"cannot write checkpoint {target} (if the disk is full, free some, then continue with --resume)",
        ):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            yield temporary
            _seal(temporary)
            _swap_in(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def verify_checkpoint(path: Path) -> None:
    """Raise CheckpointError naming the remedy and the first file that is missing, truncated or changed."""
    if not path.is_dir():
        steps = ", ".join(str(step) for step, _ in list_checkpoints(path.parent.parent)) or "none"
        raise CheckpointError(f"there is no checkpoint {path}; this run has checkpoints for steps: {steps}")
    remedy = f"delete the folder {path} to fall back to the checkpoint before it"
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        expectations = [(str(name), int(entry["size"]), str(entry["sha256"])) for name, entry in manifest.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
        raise CheckpointError(
            f"checkpoint {path} has no readable {MANIFEST} ({type(cause).__name__}: {cause}); {remedy}"
        ) from cause
    for name, size, sha256 in expectations:
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"checkpoint {path} lacks {name}; {remedy}")
        if (stored_size := file.stat().st_size) != size:
            raise CheckpointError(
                f"checkpoint {path}: {name} has {stored_size} bytes instead of {size} (truncated?); {remedy}"
            )
        try:
            same = _sha256(file) == sha256
        except OSError as cause:
            raise CheckpointError(
                f"checkpoint {path}: cannot read {name} ({cause.strerror or cause}); {remedy}"
            ) from cause
        if not same:
            raise CheckpointError(f"checkpoint {path}: {name} differs from what was written (changed?); {remedy}")


def latest_checkpoint(run: Path) -> Path | None:
    """Return the checkpoint with the highest step; None if there is none. `verify_checkpoint` tells whether it is
    intact."""
    checkpoints = list_checkpoints(run)
    return checkpoints[-1][1] if checkpoints else None


def prune(run: Path, *, keep: int, always: Collection[int] = (), also: Collection[int] = ()) -> None:
    """Delete all but the latest `keep` (at least 1) checkpoints and those of the steps in `always` and `also`; those
    in `always` do not count among the latest.

    Raises ValueError for a smaller `keep`, StoreError when the disk refuses.
    """
    if keep < 1:
        raise ValueError(f"keep={keep} would delete the latest checkpoint; it must be at least 1")
    candidates = [path for step, path in list_checkpoints(run) if step not in always]
    for path in [path for path in candidates[:-keep] if int(path.name.removeprefix("step_")) not in also]:
        doomed = _aside(path, "tmp")
        try:
            shutil.rmtree(doomed, ignore_errors=True)
            os.rename(path, doomed)
            shutil.rmtree(doomed)
        except OSError as cause:
            raise disk_error("delete checkpoint", path, cause) from cause


def sweep(run: Path) -> None:
    """At start: remove what a killed process left half-written, and restore a checkpoint that it had set aside.

    Raises StoreError.
    """
    checkpoints = run / "checkpoints"
    for old in checkpoints.glob(".step_*.old"):
        target = checkpoints / old.name[1:].removesuffix(".old")
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
            continue
        try:
            os.rename(old, target)
        except OSError as cause:
            raise disk_error("restore checkpoint", target, cause) from cause
    for temporary in checkpoints.glob(".step_*.tmp"):
        shutil.rmtree(temporary, ignore_errors=True)
    for folder in (run, run / "steps", run / "evaluations", *(run / "groups").glob("*")):
        for file in folder.glob(".*.tmp"):
            file.unlink(missing_ok=True)


def _path(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step_{step:06d}"


def _aside(target: Path, suffix: str) -> Path:
    return target.with_name(f".{target.name}.{suffix}")


def list_checkpoints(run: Path) -> list[tuple[int, Path]]:
    """List step and path of every finished checkpoint, by step; `verify_checkpoint` tells whether one is intact."""
    paths = [
        path for path in (run / "checkpoints").glob("step_*") if path.is_dir() and re.fullmatch(r"step_\d+", path.name)
    ]
    return sorted((int(path.name.removeprefix("step_")), path) for path in paths)


def _seal(folder: Path) -> None:
    """Write the manifest and wait until everything is on disk."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    manifest = {
        file.relative_to(folder).as_posix(): {"size": file.stat().st_size, "sha256": _sha256(file)} for file in files
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for path in (*files, folder / MANIFEST, *(p for p in folder.rglob("*") if p.is_dir()), folder):
        sync(path)


def _swap_in(temporary: Path, target: Path) -> None:
    """Rename `temporary` to `target`. At every moment one complete checkpoint exists, under its name or set aside."""
    old = _aside(target, "old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        os.rename(target, old)
    try:
        os.rename(temporary, target)
    except OSError:
        if old.exists():
            os.rename(old, target)
        raise
    sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
