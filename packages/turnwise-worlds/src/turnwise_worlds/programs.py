"""The programs of the operating system that these worlds start; `make system` installs them."""

from __future__ import annotations

from turnwise.core.programs import SystemProgram

BROWSER = SystemProgram(
    command="chromium-headless-shell", package="chromium-headless-shell", used_by="the surface 'chromium'"
)
COQTOP = SystemProgram(command="coqtop", package="coq", used_by="environment 'coq'")
COQC = SystemProgram(command="coqc", package="coq", used_by="environment 'coq'")
COQCHK = SystemProgram(command="coqchk", package="coq", used_by="environment 'coq'")
METAMATH = SystemProgram(command="metamath", package="metamath", used_by="the second opinion on proofs")
PROGRAMS = (BROWSER, COQTOP, COQC, COQCHK, METAMATH)
