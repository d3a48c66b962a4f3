"""Packages as pip leaves them, without pip: modules on the path, and a folder that names their entry points."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "extension"


def write_entry_points(
    folder: Path, package: str, groups: Mapping[str, Mapping[str, str]], *, requires: str = ""
) -> None:
    """Let a folder of the path say that it holds a package with these entry points, group by group."""
    information = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    information.mkdir()
    requirement = f"Requires-Dist: {requires}\n" if requires else ""
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n{requirement}")
    lines = []
    for group, names in groups.items():
        lines += [f"[{group}]", *(f"{name} = {path}" for name, path in names.items())]
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n")


def install_example(folder: Path) -> None:
    """Install `examples/extension` into a folder of the path."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    (folder / "turnwise_dice").symlink_to(EXAMPLE / "turnwise_dice")
    write_entry_points(folder, project["name"], project["entry-points"])
