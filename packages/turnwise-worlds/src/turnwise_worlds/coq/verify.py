"""The last word on a proof: coqc compiles it from a file and coqchk checks what coqc wrote, both in fresh processes.

coqchk checks that file, not again the installed libraries that it imports: those of `Lia` alone take it more than a
minute.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from turnwise.core.errors import DataError
from turnwise.environments.episodes import run_apart
from turnwise.environments.shared_sandbox import SharedSandbox
from turnwise_sandbox.types import Execution, Limits, Program
from turnwise_worlds.coq.process import FILES, OPENINGS, VARIABLES, last_line
from turnwise_worlds.coq.sentences import KNOWN, check_tactic
from turnwise_worlds.proving.prover import ProverLost, TacticRefused, Theorem, Verdict

LIBRARY = "turnwise_proofs"
"""Name of the file, and so of the library that coqchk checks."""
LARGEST_BATCH = 64
"""Proofs in one file, at most."""
WAIT_S = 300.0
"""Seconds that a proof may wait for its turn."""
MAX_REMEMBERED = 100_000
"""Verdicts that are remembered, at most."""
CLOSED = "Closed under the global context"
_MARK = "turnwise_mark"
_TRUSTED = ("Axioms", "Constants/Inductives relying on type-in-type", "Inductives whose positivity is assumed")
_HEADINGS = (*_TRUSTED, "Constants/Inductives relying on unsafe (co)fixpoints")
_SECTION = re.compile(r"^\* (.+?):(.*(?:\n(?!\*).*)*)", re.MULTILINE)


@dataclass(slots=True)
class _Request:
    theorem: Theorem
    script: tuple[str, ...]
    done: threading.Event = field(default_factory=threading.Event)
    verdict: Verdict | None = None
    """None if the sandbox failed."""


class CoqVerifier:
    """Checks proofs, as many at once as wait: coqc and coqchk take as long for sixty proofs as for two."""

    def __init__(self, sandbox: SharedSandbox, coqtop: str, *, cpu_s: int = 60, memory_mib: int = 1024) -> None:
        """coqc and coqchk lie beside `coqtop`. One run may take `cpu_s` seconds of processor time, and
        `memory_mib` MiB."""
        folder = PurePosixPath(coqtop).parent
        self._command = "".join(f"export {name}={value!r}\n" for name, value in VARIABLES.items()) + (
            'export HOME="$PWD"\n'
            f"{folder / 'coqc'} -q -w none {LIBRARY}.v || exit 3\n"
            f"echo {_MARK}\n{folder / 'coqchk'} -silent -o -norec {LIBRARY} 2>&1 || exit 4\n"
        )
        self._sandbox = sandbox
        self._limits = Limits(wall_s=WAIT_S, cpu_s=cpu_s, memory_bytes=memory_mib << 20, num_pids=32)
        self._lock = threading.Lock()
        self._running = threading.Lock()
        """Held by the caller that checks for all who wait."""
        self._waiting: list[_Request] = []
        self._known: dict[tuple[Theorem, tuple[str, ...]], Verdict] = {}
        self.num_runs = 0
        """Runs of coqc so far."""

    def verify(self, theorem: Theorem, script: tuple[str, ...]) -> Verdict:
        """Return whether Coq accepts a whole proof that uses no axiom. A proof that it has accepted before in this
        process is not checked again. Raises ProverLost if the sandbox fails or there is no verdict in time."""
        try:
            for sentence in script:
                check_tactic(sentence, KNOWN)
        except TacticRefused as refused:
            return Verdict(accepted=False, reason=str(refused))
        request = _Request(theorem, script)
        with self._lock:
            known = self._known.get((theorem, script))
            if known is not None:
                return known
            self._waiting.append(request)
        if not self._running.acquire(timeout=WAIT_S):
            raise ProverLost(f"no verdict on theorem {theorem.name!r} within {WAIT_S:g} s")
        try:
            if not request.done.is_set():
                self._check_waiting(request)
        finally:
            self._running.release()
        if request.verdict is None:
            raise ProverLost(f"coqc gave no verdict on theorem {theorem.name!r}")
        return request.verdict

    def check_file(self, theorem: Theorem, script: tuple[str, ...]) -> Verdict:
        """Return what coqc and coqchk say of a script, whatever its sentences are. Nothing is remembered."""
        [verdict] = self.check_all([(theorem, script)])
        return verdict

    def check_all(self, proofs: Sequence[tuple[Theorem, tuple[str, ...]]]) -> list[Verdict]:
        """Return what coqc and coqchk say of proofs with the same imports: together, and one by one if that fails."""
        return run_apart(self._check(proofs))

    def _check_waiting(self, request: _Request) -> None:
        """Check a request, and others with the same imports that wait."""
        with self._lock:
            fitting = [each for each in self._waiting if each.theorem.imports == request.theorem.imports]
            batch = [request, *(each for each in fitting if each is not request)][:LARGEST_BATCH]
            self._waiting = [each for each in self._waiting if each not in batch]
        try:
            verdicts = self.check_all([(each.theorem, each.script) for each in batch])
            for each, verdict in zip(batch, verdicts, strict=True):
                each.verdict = verdict
            with self._lock:
                self._known.update({(each.theorem, each.script): each.verdict for each in batch if each.verdict})
                while len(self._known) > MAX_REMEMBERED:
                    self._known.pop(next(iter(self._known)))
        finally:
            for each in batch:
                each.done.set()

    async def _check(self, batch: Sequence[tuple[Theorem, tuple[str, ...]]]) -> list[Verdict]:
        source = write_file(batch)
        program = Program(code=self._command, language="bash", files={**FILES, f"{LIBRARY}.v": source.encode()})
        self.num_runs += 1
        execution = await self._sandbox.run(program, self._limits)
        verdict = read_verdict(execution, len(batch))
        if verdict.accepted or len(batch) == 1:
            return [verdict] * len(batch)
        return [verdict for each in batch for verdict in await self._check([each])]


def write_file(proofs: Sequence[tuple[Theorem, tuple[str, ...]]]) -> str:
    """Write a Coq file of proofs with the same imports, each in a module, with two checks that follow it: that what was
    proved is the statement as it was before the module, and that it rests on no axiom."""
    lines = [*OPENINGS, *proofs[0][0].imports]
    for number, (theorem, script) in enumerate(proofs):
        lines += [
            f"Definition claim{number} := {close_statement(theorem)}.",
            f"Module M{number}.",
            state_theorem(theorem),
            "Proof.",
            *script,
            "Qed.",
            f"End M{number}.",
            f"Definition proved{number} : claim{number} := @M{number}.{theorem.name}.",
            f"Print Assumptions proved{number}.",
        ]
    return "\n".join(lines) + "\n"


def read_verdict(execution: Execution, count: int) -> Verdict:
    """Read what coqc and coqchk said of a file with `count` proofs. Raises ProverLost if they were killed, or took too
    long by the clock, which may be the fault of other programs."""
    if execution.limit is not None and execution.limit != "wall":
        return Verdict(accepted=False, reason=f"coqc or coqchk hit the limit {execution.limit!r}")
    if execution.exit_code not in (0, 3, 4):
        raise ProverLost(f"coqc or coqchk ended with status {execution.exit_code}, signal {execution.signal}")
    said, _, summary = execution.stdout.decode(errors="replace").partition(_MARK)
    if execution.exit_code:
        program = "coqc" if execution.exit_code == 3 else "coqchk"
        return Verdict(accepted=False, reason=f"{program}: {last_line(execution.text())}")
    num_closed = said.splitlines().count(CLOSED)
    if num_closed != count or "Axioms:" in said:
        return Verdict(accepted=False, reason=f"rests on an axiom: {' '.join(said.split())[:200]}")
    sections = {match[1]: match[2] for match in _SECTION.finditer(summary)}
    for heading in _HEADINGS:
        if heading not in sections:
            return Verdict(accepted=False, reason=f"coqchk does not report {heading!r}")
        if f"{LIBRARY}." in sections[heading]:
            return Verdict(accepted=False, reason=f"coqchk: {heading}: {' '.join(sections[heading].split())[:200]}")
    return Verdict(accepted=True)


def state_theorem(theorem: Theorem) -> str:
    """Return the sentence that opens the proof of a theorem."""
    binders, type_ = split_statement(theorem)
    return f"Theorem {theorem.name}{binders and ' ' + binders} : {type_}."


def close_statement(theorem: Theorem) -> str:
    """Return a statement as one type, its binders in front."""
    binders, type_ = split_statement(theorem)
    return f"forall {binders}, {type_}" if binders else type_


def split_statement(theorem: Theorem) -> tuple[str, str]:
    """Return the binders and the type of a statement; it has binders if nothing but brackets stands before a colon.

    Raises DataError if brackets do not match.
    """
    text = " ".join(theorem.statement.split())
    depth, colon, is_type = 0, -1, False
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and character == ":" and not is_type:
            colon, is_type = at, True
        is_type = is_type or (depth == 0 and character not in ")]} ")
        if depth < 0:
            break
    if depth:
        raise DataError(f"theorem {theorem.name!r}: brackets do not match in {text[:80]!r}")
    return text[: max(colon, 0)].strip(), text[colon + 1 :].strip()
