"""Folders named by the process id of their creator, removed after that process has ended."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path


def make_folder(parent: Path, prefix: str) -> Path:
    """Create a folder for this process, mode 700; folders with this prefix whose creators have ended are removed."""
    sweep(parent, prefix)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))


def sweep(parent: Path, prefix: str) -> None:
    """Remove the folders with this prefix whose creators have ended."""
    for folder in parent.glob(f"{prefix}*"):
        pid = folder.name.removeprefix(prefix).split("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)
