"""One coqtop: sentences in, answers out."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.environments.shared_sandbox import SharedSandbox
from turnwise_worlds.proving.program import TalkingProgram
from turnwise_worlds.proving.prover import ProverLost

VARIABLES = {"OCAMLRUNPARAM": "s=1M", "OCAMLFIND_CONF": "ocamlfind.conf"}
"""A young heap of 8 MB; without it coqtop takes 256 MB, and gains nothing by it on short proofs."""
FILES = {"ocamlfind.conf": b""}
"""coqtop looks for this file, which the sandbox does not show, and fails without one."""
OPTIONS = ("-q", "-emacs", "-w", "none", "-color", "no")
OPENINGS = ("Open Scope list_scope.",)
"""Before the imports of every theorem, so that statements can write `++`."""
SETTINGS = (
    *("Set Silent.", "Set Printing Width 100000.", "Set Printing Depth 60."),
    "Unset Printing Compact Contexts.",
)
"""Goals are shown when asked for, each hypothesis in one line; a term that is deeper ends in dots."""
START_S = 60.0
"""Seconds that a start, or an import, may take on a machine that does other things."""

_PROMPT = re.compile(rb"\n?<prompt>(\S+) < (\d+) \|[^|\n]*\| (\d+) < </prompt>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What coqtop says to one sentence."""

    text: str
    state: int
    """Number of the state afterwards; that of before if the sentence was refused."""


class CoqProcess:
    """One coqtop, for one caller at a time."""

    def __init__(self, sandbox: SharedSandbox, coqtop: str, *, memory_bytes: int, imports: Sequence[str] = ()) -> None:
        """Start it and run the `imports`. Raises ProgramEnded, ProverLost."""
        self.imports = tuple(imports)
        self.base = 0
        """The state after the imports, before any theorem."""
        self.refusal = ""
        """What coqtop says of an import that it refuses."""
        self.num_theorems = 0
        """Theorems stated so far."""
        self.num_at_look = 0
        """Theorems when its memory was last looked at."""
        self.trail: list[tuple[str, int]] = []
        """The sentences since `base` with the states after them."""
        self._unread = b""
        command = [coqtop, *OPTIONS]
        self._program = TalkingProgram(
            sandbox, command, memory_bytes=memory_bytes, num_pids=8, variables=VARIABLES, files=FILES
        )
        try:
            [greeting] = self._receive(1, time.monotonic() + START_S)
            self.base = greeting.state
            for sentence in (*OPENINGS, *SETTINGS, *imports):
                [answer] = self.ask([sentence], START_S)
                if answer.state == self.base:
                    self.refusal = f"{sentence} {last_line(answer.text)}"
                self.base = answer.state
        except BaseException:
            self.close()
            raise

    def ask(self, sentences: Sequence[str], seconds: float) -> list[Answer]:
        """Return the answers to sentences, each of which must be one, in one line. Raises ProgramEnded and ProverLost,
        after which there is nothing to ask."""
        deadline = time.monotonic() + seconds
        self._program.send("".join(f"{sentence}\n" for sentence in sentences), deadline)
        return self._receive(len(sentences), deadline)

    def _receive(self, count: int, deadline: float) -> list[Answer]:
        answers: list[Answer] = []
        while True:
            start = 0
            for match in _PROMPT.finditer(self._unread):
                text = self._unread[start : match.start()].decode(errors="replace")
                answers.append(Answer(text=text, state=int(match[2])))
                start = match.end()
            self._unread = self._unread[start:]
            if len(answers) > count:
                self.close()
                raise ProverLost("coqtop answered more often than it was asked")
            if len(answers) == count:
                return answers
            self._unread += self._program.receive(deadline)

    def close(self) -> None:
        """End the process. A second call does nothing."""
        self._program.close()


def last_line(text: str) -> str:
    """Return what an answer says, without the place in the input: in one line, from "Error:" on."""
    _, found, said = text.rpartition("Error:")
    return " ".join((said if found else text).split())[:300]
