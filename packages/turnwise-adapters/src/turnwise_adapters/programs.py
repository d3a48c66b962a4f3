"""The programs of the operating system that the adapters start; `make system` installs them."""

from __future__ import annotations

from turnwise.core.programs import SystemProgram

JAVA = SystemProgram(command="java", package="default-jre-headless", used_by="environment 'scienceworld'")
PROGRAMS = (JAVA,)
