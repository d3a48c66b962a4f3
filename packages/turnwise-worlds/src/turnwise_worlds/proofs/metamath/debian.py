"""Debian's `metamath` as a judge of one theorem at a time."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from turnwise.core.errors import TurnwiseError
from turnwise_worlds.programs import METAMATH

DEADLINE_S = 20.0
"""Most seconds that the program may take; one theorem takes milliseconds."""
MAX_MEMORY = 2**30
"""Most bytes of address space of the program."""
MAX_OUTPUT = 2**20
"""Most bytes that it may print, or write to one file."""
_NAME = "theorem.mm"


class NoVerdict(TurnwiseError):
    """The program gave no verdict: it did not start, ran past its deadline, or was killed."""


def ask_metamath(database: str, label: str, *, deadline_s: float = DEADLINE_S) -> str | None:
    """Let `metamath` read a database and verify the proof of `label`; returns what it objects to, None if nothing.

    A database with errors counts as refused, although the program goes on and reports that all proofs are right. Raises
    NoVerdict, and ConfigError with the remedy if the program is missing.
    """
    program = METAMATH.find()
    with tempfile.TemporaryDirectory(prefix="turnwise-metamath-") as folder:
        (Path(folder) / _NAME).write_text(database)
        printed = Path(folder) / "printed"
        with printed.open("wb") as output:
            # Without an end of input it waits for commands, also after those of the command line.
            process = subprocess.Popen(
                [program, f"read {_NAME}", f"verify proof {label}", "exit"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with suppress(ProcessLookupError):  # it may have ended
                resource.prlimit(process.pid, resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (MAX_OUTPUT, MAX_OUTPUT))
            try:
                code = process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                raise NoVerdict(f"metamath took longer than {deadline_s:g} s") from None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return read_verdict(printed.read_text(errors="replace"), label, code)


def read_verdict(printed: str, label: str, code: int) -> str | None:
    """Read what the program printed: objections are lines that start with `?` or `Warning`.

    Raises NoVerdict for an exit code other than 0, and where what a whole run prints is missing."""
    lines = printed.splitlines()
    # It warns of a proof with unknown steps, and prints the theorem's name all the same.
    problems = [line for line in lines if line.startswith(("?", "Warning"))]
    if problems:
        # The place, lines that show it, and the reason; then the next command.
        after = takewhile(lambda line: not line.startswith("MM>"), lines[lines.index(problems[0]) :])
        reason = [line for line in after if line.strip()][-1]
        return f"{problems[0]} {reason}" if reason != problems[0] else reason
    # The name of the theorem is all that it prints about a proof that is right.
    if code or "No errors were found." not in printed or f"{label} " not in lines:
        raise NoVerdict(f"metamath ended with code {code} and without a verdict: {printed[-200:]!r}")
    return None
