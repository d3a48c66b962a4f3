"""Coq as a prover: a few coqtop processes that all proofs share.

Episodes are many and a coqtop is large, so none belongs to an episode. A process that is asked for the state of another
proof goes back to where both agree (`BackTo`) and runs the tactics that are missing: 0.1 ms each. That also replaces a
process that was killed.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time
from collections.abc import Iterator

from turnwise.core.errors import DataError
from turnwise.environments.episodes import run_apart
from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise_worlds.coq.goals import read_goals
from turnwise_worlds.coq.process import CoqProcess, last_line
from turnwise_worlds.coq.verify import CoqVerifier, state_theorem
from turnwise_worlds.proving.program import ProgramEnded
from turnwise_worlds.proving.prover import ProofState, ProverLost, Refusal, TacticRefused, Theorem, Verdict

MAX_THEOREMS = 2000
"""Theorems after which a process is replaced: coqtop does not give all memory back."""
THEOREMS_PER_LOOK = 100
"""Theorems between two looks at a process's memory, which is replaced when half of its limit is used."""
GRACE_S = 10.0
"""Seconds beyond the time for a tactic after which a process that does not answer is ended."""
WAIT_S = 120.0
"""Seconds that a caller waits for a free process."""
_HEAP = re.compile(r"^heap_words: (\d+)", re.MULTILINE)
_WORD_BYTES = 8


class CoqProver:
    """Implements `Prover` with coqtop, coqc and coqchk, all of them in the sandbox."""

    def __init__(
        self, coqtop: str, *, num_processes: int = 2, tactic_timeout_s: float = 2.0, memory_mib: int = 1024
    ) -> None:
        """`coqtop` is the program's path; coqc and coqchk lie beside it. A tactic may take `tactic_timeout_s` seconds,
        in steps of one; a process `memory_mib` MiB. Nothing starts before it is needed."""
        self._coqtop = coqtop
        self._num_processes = num_processes
        self._seconds = max(1, math.ceil(tactic_timeout_s))
        self._memory_bytes = memory_mib << 20
        self._sandbox = SharedSandbox(load_sandbox("local", {"num_slots": num_processes + 1}))
        self._verifier = CoqVerifier(self._sandbox, coqtop)
        self._changed = threading.Condition()
        self._idle: list[CoqProcess] = []
        self._num_open = 0
        self._closed = False
        self.num_started = 0
        """Processes started so far."""

    def start(self, theorem: Theorem) -> ProofState:
        """See `Prover.start`."""
        text = self._run(theorem, (), None)
        goals = read_goals(text)
        if goals is None:
            raise DataError(f"theorem {theorem.name!r}: {last_line(text) or 'Coq shows no goal for it'}")
        return ProofState(theorem=theorem, script=(), goals=goals)

    def apply(self, state: ProofState, tactic: str) -> ProofState:
        """See `Prover.apply`. The tactic is a sentence of `check_tactic`."""
        text = self._run(state.theorem, state.script, tactic)
        goals = read_goals(text)
        if goals is None:
            said = last_line(text)
            raise TacticRefused("time" if said == "Timeout!" else "wrong", said)
        return ProofState(theorem=state.theorem, script=(*state.script, tactic), goals=goals)

    def verify(self, theorem: Theorem, script: tuple[str, ...]) -> Verdict:
        """See `Prover.verify` and `CoqVerifier`."""
        return self._verifier.verify(theorem, script)

    def close(self) -> None:
        """See `Prover.close`."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.close()
        run_apart(self._sandbox.close())

    def _run(self, theorem: Theorem, script: tuple[str, ...], tactic: str | None) -> str:
        """Return what Coq shows after a script and a tactic, in whatever process.

        A process that ends is replaced once: if the second ends too, the tactic did it. Raises TacticRefused,
        ProverLost.
        """
        limit = None
        for _ in range(2):
            try:
                with self._take(theorem) as process:
                    return self._ask(process, theorem, script, tactic)
            except ProgramEnded as end:
                limit = end.limit
        kinds: dict[str | None, Refusal] = {"wall": "time", "memory": "memory", "output": "output"}
        if tactic is None or limit not in kinds:
            raise ProverLost(f"coqtop ended twice on theorem {theorem.name!r} (limit: {limit or 'none'})")
        raise TacticRefused(kinds[limit], f"the tactic used up its {kinds[limit]}")

    def _ask(self, process: CoqProcess, theorem: Theorem, script: tuple[str, ...], tactic: str | None) -> str:
        """Return what Coq shows after a script and a tactic, or why it refuses the tactic, or the theorem."""
        wanted = [state_theorem(theorem), *script]
        pairs = zip(process.trail, wanted, strict=False)
        shared = next((at for at, ((sentence, _), other) in enumerate(pairs) if sentence != other), None)
        del process.trail[min(len(wanted), len(process.trail)) if shared is None else shared :]
        missing = wanted[len(process.trail) :]
        process.num_theorems += len(missing) == len(wanted)
        reached = process.trail[-1][1] if process.trail else process.base
        new = [] if tactic is None else [f"Timeout {self._seconds} {tactic}"]
        _, *answers, shown = process.ask([f"BackTo {reached}.", *missing, *new, "Show."], self._seconds + GRACE_S)
        for sentence, answer in zip([*missing, *([tactic] if tactic else [])], answers, strict=True):
            if answer.state == reached:  # refused
                if answer is answers[-1] or sentence == wanted[0]:
                    return answer.text
                raise ProverLost(f"Coq refuses a tactic that it accepted before: {last_line(answer.text)}")
            reached = answer.state
            process.trail.append((sentence, reached))
        return shown.text

    # -------------------------------------------------------------------------------------------- processes

    @contextlib.contextmanager
    def _take(self, theorem: Theorem) -> Iterator[CoqProcess]:
        """Hold a process with the theorem's imports, the one that is in the same proof if there is one."""
        process = self._find(theorem)
        try:
            if process is None:
                process = CoqProcess(
                    self._sandbox, self._coqtop, memory_bytes=self._memory_bytes, imports=theorem.imports
                )
                self.num_started += 1
                if process.refusal:
                    process.close()
                    raise DataError(f"theorem {theorem.name!r}: {process.refusal}")
            yield process
        except BaseException:
            if process is not None:
                process.close()
            self._give_back(None)
            raise
        self._give_back(None if self._is_worn(process) else process, process)

    def _find(self, theorem: Theorem) -> CoqProcess | None:
        """Wait for an idle process, or for room for a new one, for which None stands."""
        deadline = time.monotonic() + WAIT_S
        statement = state_theorem(theorem)
        with self._changed:
            while True:
                if self._closed:
                    raise ProverLost("the prover is closed; build a new one")
                fitting = [process for process in self._idle if process.imports == theorem.imports]
                if fitting:
                    same = [process for process in fitting if process.trail and process.trail[0][0] == statement]
                    process = (same or fitting)[-1]
                    self._idle.remove(process)
                    return process
                if self._num_open < self._num_processes:
                    self._num_open += 1
                    return None
                if self._idle:
                    self._idle.pop(0).close()
                    return None
                if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    raise ProverLost(f"no coqtop became free within {WAIT_S:g} s; raise num_processes")

    def _give_back(self, process: CoqProcess | None, used: CoqProcess | None = None) -> None:
        """Return a process after its use; None if there is none to return."""
        with self._changed:
            if process is None or self._closed:
                self._num_open -= 1
            else:
                self._idle.append(process)
            self._changed.notify()
        if used is not None and (process is None or self._closed):
            used.close()

    def _is_worn(self, process: CoqProcess) -> bool:
        if process.num_theorems >= MAX_THEOREMS:
            return True
        if process.num_theorems - process.num_at_look < THEOREMS_PER_LOOK:
            return False
        process.num_at_look = process.num_theorems
        try:
            [answer] = process.ask(["Print Debug GC."], GRACE_S)
        except ProgramEnded:
            return True
        heap = _HEAP.search(answer.text)
        return heap is None or int(heap[1]) * _WORD_BYTES > self._memory_bytes / 2
