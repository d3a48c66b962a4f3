"""Extensions from installed packages: objects that they name in entry-point groups."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from turnwise.core.errors import ConfigError, boundary


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """One name in one group."""

    group: str
    name: str
    paths: tuple[str, ...]
    """Import paths "package.module:object"; one, unless several packages use the name."""
    owners: tuple[str, ...]
    """The packages that use the name."""

    def load(self) -> Any:
        """Import the object. Raises ConfigError if several packages use the name or the import fails."""
        owners = " and ".join(self.owners)
        if len(self.owners) > 1:
            raise ConfigError(f"{self.name!r} in the group {self.group} comes from {owners}; uninstall all but one")
        with boundary(ConfigError, f"{self.paths[0]}, {self.name!r} in the group {self.group} of package {owners}"):
            return EntryPoint(name=self.name, value=self.paths[0], group=self.group).load()


def list_extensions(group: str) -> list[Extension]:
    """List the names in a group, in alphabetical order, without importing any package."""
    found: dict[str, dict[str, str]] = {}
    for entry in entry_points(group=group):
        owner = entry.dist.name if entry.dist is not None else "an unknown package"
        found.setdefault(entry.name, {})[owner] = entry.value
    return [
        Extension(group=group, name=name, paths=tuple(sorted(set(given.values()))), owners=tuple(sorted(given)))
        for name, given in sorted(found.items())
    ]
