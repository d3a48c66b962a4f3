"""Programs of the operating system that environments start: found on the path, or refused with the remedy.

A package lists those of its environments in the entry-point group `turnwise.programs`, as a sequence of
`SystemProgram`; `turnwise doctor` shows which are installed.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.core.errors import ConfigError
from turnwise.core.offers import import_object, list_offers

GROUP = "turnwise.programs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemProgram:
    """A program that an environment needs, and the package of Debian that has it."""

    command: str
    package: str
    used_by: str
    """What needs it, as an error names it, such as "environment 'coq'"."""

    def find(self) -> str:
        """Return the absolute path of the program. Raises ConfigError with the remedy if it is missing."""
        path = shutil.which(self.command)
        if path is None:
            raise ConfigError(
                f"{self.used_by} needs the program {self.command}, which is missing; install it with: apt-get install "
                f"{self.package} (in a checkout of Turnwise: make system)"
            )
        return path


def list_programs() -> list[SystemProgram]:
    """Return the programs of all installed packages, by name of the offer. Raises ConfigError for an offer that cannot
    be imported or is something else."""
    programs: list[SystemProgram] = []
    for offer in list_offers(GROUP):
        listed = import_object("programs", offer.name, offer)
        if not isinstance(listed, Sequence) or not all(isinstance(each, SystemProgram) for each in listed):
            raise ConfigError(
                f"programs={offer.name!r} of the package {offer.package} must be a sequence of SystemProgram, not "
                f"{type(listed).__name__}"
            )
        programs += listed
    return programs
