"""The programs that the worlds start are listed for the doctor and installed by `make system`."""

from __future__ import annotations

from pathlib import Path

from turnwise.core.programs import list_programs
from turnwise_worlds.programs import PROGRAMS

ROOT = Path(__file__).parents[3]


def test_every_program_is_listed_and_installed_by_the_target() -> None:
    assert set(PROGRAMS) <= set(list_programs())
    installed = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("DEBIAN :="))
    assert {program.package for program in PROGRAMS} <= set(installed.split())
