"""Lean as a prover: a REPL that keeps the states of proofs, and a fresh one for the last word."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise.environments.episodes import run_apart
from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise_worlds.lean.repl import Repl, list_errors
from turnwise_worlds.lean.sentences import check_tactic
from turnwise_worlds.proving.program import ProgramEnded
from turnwise_worlds.proving.prover import Goal, ProofState, ProverLost, Refusal, TacticRefused, Theorem, Verdict

USUAL_AXIOMS = frozenset(("propext", "Classical.choice", "Quot.sound"))
"""The axioms of Lean's own library; a proof that uses another is refused."""
START_S = 300.0
"""Seconds that a start with its imports may take."""
MAX_THEOREMS = 1000
"""Theorems after which a REPL is replaced, as it keeps every state."""
_AXIOMS = re.compile(r"depends on axioms: \[(.*?)\]", re.DOTALL)
_NONE = "does not depend on any axioms"


class LeanProver:
    """Implements `Prover` with a Lean REPL (github.com/leanprover-community/repl). Proofs take turns."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        visible: Sequence[Path] = (),
        files: Mapping[str, bytes] | None = None,
        tactic_timeout_s: float = 10.0,
        memory_mib: int = 8192,
    ) -> None:
        """`command` starts the REPL inside the sandbox, which shows the folders `visible` and holds `files`. Nothing
        starts before it is needed."""
        self._command = tuple(command)
        self._visible = tuple(visible)
        self._files = dict(files or {})
        self._seconds = tactic_timeout_s
        self._memory_bytes = memory_mib << 20
        self._sandbox = SharedSandbox(load_sandbox("local", {"num_slots": 2}))
        self._turn = threading.RLock()
        self._repl: Repl | None = None
        self._imports: dict[tuple[str, ...], int | None] = {}
        """The environment after some imports, of the present REPL."""
        self._handles: dict[tuple[Theorem, tuple[str, ...]], int] = {}
        """Its number of the state after a script."""
        self._num_theorems = 0

    def start(self, theorem: Theorem) -> ProofState:
        """See `Prover.start`."""
        with self._turn:
            if self._num_theorems >= MAX_THEOREMS:
                self._drop()
            self._num_theorems += 1
            return self._repeat(lambda repl: self._state(repl, theorem))

    def apply(self, state: ProofState, tactic: str) -> ProofState:
        """See `Prover.apply`."""
        checked = check_tactic(tactic)
        with self._turn:
            return self._repeat(lambda repl: self._apply(repl, state, checked), is_tactic=True)

    def verify(self, theorem: Theorem, script: tuple[str, ...]) -> Verdict:
        """See `Prover.verify`: the whole theorem is compiled by a fresh REPL, which then lists its axioms."""
        try:
            lines = [check_tactic(tactic) for tactic in script]
        except TacticRefused as refused:
            return Verdict(accepted=False, reason=str(refused))
        proof = "\n".join(f"  {line}" for line in lines)
        repl = self._open()
        try:
            environment = self._import(repl, theorem.imports)
            text = f"theorem {theorem.name} {theorem.statement} := by\n{proof}"
            compiled = repl.ask(to_command(text, environment), START_S)
            if (errors := list_errors(compiled)) or compiled.get("sorries"):
                return Verdict(accepted=False, reason=(errors or ["a goal is left open"])[0])
            listed = repl.ask(to_command(f"#print axioms {theorem.name}", compiled.get("env")), START_S)
        except ProgramEnded as ended:
            raise ProverLost(f"Lean gave no verdict on theorem {theorem.name!r}: {ended}") from None
        finally:
            repl.close()
        return read_axioms(listed)

    def close(self) -> None:
        """See `Prover.close`."""
        with self._turn:
            self._drop()
        run_apart(self._sandbox.close())

    def _repeat(self, work: Any, *, is_tactic: bool = False) -> ProofState:
        """Do work on the REPL; where that ends, once more on a fresh one. Raises TacticRefused, ProverLost."""
        limit = None
        for _ in range(2):
            try:
                if self._repl is None:
                    self._repl = self._open()
                done: ProofState = work(self._repl)
                return done
            except ProgramEnded as ended:
                limit = ended.limit
                self._drop()
            except ProverLost:
                self._drop()
                raise
        kinds: dict[str | None, Refusal] = {"wall": "time", "memory": "memory", "output": "output"}
        if not is_tactic or limit not in kinds:
            raise ProverLost(f"the REPL ended twice (limit: {limit or 'none'})")
        raise TacticRefused(kinds[limit], f"the tactic used up its {kinds[limit]}")

    def _state(self, repl: Repl, theorem: Theorem) -> ProofState:
        environment = self._import(repl, theorem.imports)
        text = f"theorem {theorem.name} {theorem.statement} := by sorry"
        answer = repl.ask(to_command(text, environment), START_S)
        errors, sorries = list_errors(answer), answer.get("sorries")
        if errors or not isinstance(sorries, list) or len(sorries) != 1 or "proofState" not in sorries[0]:
            raise DataError(f"theorem {theorem.name!r}: {(errors or ['Lean shows no goal for it'])[0]}")
        handle = int(sorries[0]["proofState"])
        self._handles[theorem, ()] = handle
        return ProofState(theorem=theorem, script=(), goals=read_goals([sorries[0].get("goal", "")]), handle=handle)

    def _apply(self, repl: Repl, state: ProofState, tactic: str) -> ProofState:
        key = (state.theorem, state.script)
        if key not in self._handles:  # of a REPL that is gone
            again = self._state(repl, state.theorem)
            for earlier in state.script:
                again = self._apply(repl, again, earlier)
        answer = repl.ask({"tactic": tactic, "proofState": self._handles[key]}, self._seconds)
        errors = list_errors(answer)
        status = str(answer.get("proofStatus", ""))
        if errors or answer.get("sorries") or "sorry" in status or not isinstance(answer.get("goals"), list):
            raise TacticRefused("wrong", (errors or ["the tactic leaves a goal open"])[0])
        handle, script = int(answer["proofState"]), (*state.script, tactic)
        self._handles[state.theorem, script] = handle
        return ProofState(theorem=state.theorem, script=script, goals=read_goals(answer["goals"]), handle=handle)

    def _import(self, repl: Repl, imports: tuple[str, ...]) -> int | None:
        """Return the environment after imports; None for none. Raises DataError if Lean refuses them."""
        if not imports:
            return None
        if repl is self._repl and imports in self._imports:
            return self._imports[imports]
        answer = repl.ask(to_command("\n".join(imports), None), START_S)
        if errors := list_errors(answer):
            raise DataError(f"imports {', '.join(imports)}: {errors[0]}")
        if repl is self._repl:
            self._imports[imports] = answer.get("env")
        return answer.get("env")

    def _open(self) -> Repl:
        return Repl(
            self._sandbox, self._command, visible=self._visible, memory_bytes=self._memory_bytes, files=self._files
        )

    def _drop(self) -> None:
        if self._repl is not None:
            self._repl.close()
        self._repl, self._imports, self._handles, self._num_theorems = None, {}, {}, 0


def to_command(text: str, environment: int | None) -> dict[str, Any]:
    """Return the request that runs commands in an environment; None stands for the empty one."""
    return {"cmd": text} if environment is None else {"cmd": text, "env": environment}


def read_goals(goals: Sequence[object]) -> tuple[Goal, ...]:
    """Read goals as Lean prints them: a line `a b : T` for hypotheses, and `⊢ T`."""
    found = []
    for goal in goals:
        before, _, conclusion = str(goal).rpartition("⊢")
        hypotheses: list[tuple[str, str]] = []
        for line in before.splitlines():
            names, colon, type_ = line.strip().partition(" : ")
            if colon:
                hypotheses += [(name, type_) for name in names.split()]
        found.append(Goal(hypotheses=tuple(hypotheses), conclusion=" ".join(conclusion.split())))
    return tuple(found)


def read_axioms(answer: Mapping[str, Any]) -> Verdict:
    """Read the answer to `#print axioms`."""
    said = " ".join(str(each.get("data", "")) for each in answer.get("messages", []) if isinstance(each, dict))
    if _NONE in said:
        return Verdict(accepted=True)
    listed = _AXIOMS.search(said)
    if listed is None:
        return Verdict(accepted=False, reason=f"Lean does not list its axioms: {said[:100]}")
    strange = sorted({name.strip() for name in listed[1].split(",")} - USUAL_AXIOMS)
    return Verdict(accepted=not strange, reason=f"rests on {', '.join(strange)}" if strange else "")
