"""The packages that can be added by name: `packages.toml` pins each by the SHA-256 of its source distribution."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources

from turnwise.core.errors import ConfigError
from turnwise_sandbox.types import Network
from turnwise_swe.repositories.repository import check_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package, and what its suite needs."""

    name: str
    version: str
    sha256: str
    """SHA-256 of the source distribution."""
    license: str
    in_swe_smith: bool = False
    """Whether SWE-smith has instances of the package, so that a model may have been trained on them."""
    requires: tuple[str, ...] = ()
    """What the package and its tests import, besides pytest, as pip spells it."""
    sources: tuple[str, ...] = ()
    """Folders and single modules of the package in the tree; empty: they are found by their places."""
    plugins: tuple[str, ...] = ()
    """Modules of pytest plugins."""
    options: tuple[str, ...] = ()
    """Arguments of pytest."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Test file, or id of a test with its parameters, to the reason it is left out."""
    network: Network = "none"

    @property
    def key(self) -> str:
        """`name==version`."""
        return f"{self.name}=={self.version}"


@functools.cache
def load_packages() -> tuple[Package, ...]:
    """The packages of the manifest, by name."""
    text = resources.files(__package__).joinpath("packages.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)
    return tuple(
        Package(
            name=name,
            version=row["version"],
            sha256=row["sha256"],
            license=row["license"],
            in_swe_smith=row.get("in_swe_smith", False),
            requires=tuple(row.get("requires", ())),
            sources=tuple(row.get("sources", ())),
            plugins=tuple(row.get("plugins", ())),
            options=tuple(row.get("options", ())),
            left_out=tuple(row.get("left_out", {}).items()),
            network=row.get("network", "none"),
        )
        for name, row in rows.items()
    )


def find_package(key: str) -> Package:
    """The package `name==version`. Raises ConfigError if the manifest does not have it."""
    name, version = check_key(key)
    packages = {package.name: package for package in load_packages()}
    package = packages.get(name.lower().replace("_", "-"))
    if package is not None and package.version == version:
        return package
    if package is not None:
        raise ConfigError(f"{name} is available in version {package.version}, not {version}; use {package.key}")
    raise ConfigError(
        f"{key} cannot be added by name (`turnwise repos list` shows the names), because pip would run its build "
        "script on this machine to fetch it; download its source distribution yourself and name the file"
    )
