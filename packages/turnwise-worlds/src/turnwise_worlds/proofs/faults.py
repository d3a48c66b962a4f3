"""What goes wrong in a proof, told from its tactics: the first one after which no proof is found that still fits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from turnwise.core.faults import GAVE_UP, Fault
from turnwise.core.types import Task, Trajectory
from turnwise_worlds.proofs.arguments import ProofsArguments, find_budget
from turnwise_worlds.proofs.kernel.rules import Refused
from turnwise_worlds.proofs.policies import read_tactic
from turnwise_worlds.proofs.search import MAX_DEPTH, find_script
from turnwise_worlds.proofs.state import ProofState
from turnwise_worlds.proofs.theorem import Theorem, theorem_of
from turnwise_worlds.proofs.view import View
from turnwise_worlds.proofs.words import Tactic, format_tactic

WRONG_SIDE = "wrong side"
WRONG_HYPOTHESIS = "wrong hypothesis"
WRONG_TACTIC = "wrong tactic"
REFUSED_CALLS = "tactics that do not apply"
DETOUR = "detour"

NAMES: Mapping[str, str] = {
    WRONG_SIDE: "It chose the side of a disjunction that cannot be proved.",
    WRONG_HYPOTHESIS: "It used a hypothesis after which the goal cannot be proved.",
    WRONG_TACTIC: "It called a tactic without a hypothesis after which the goal cannot be proved.",
    REFUSED_CALLS: "Tactics that do not apply used up the calls that the proof still needed.",
    DETOUR: "Tactics that applied and led nowhere used up the calls that the proof still needed.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    turn: int
    tactic: Tactic | None
    """As it was called; None for a call that is no tactic."""
    before: ProofState
    after: ProofState | None
    """None if it did not apply."""


def find_proof_fault(chosen: ProofsArguments, task: Task, trajectory: Trajectory) -> Fault | None:
    """Name what went wrong; None if a limit of the recipe ended the attempt while calls were left."""
    theorem = theorem_of(task)
    calls = list(_list_calls(View.of(theorem, chosen), theorem, trajectory))
    for call in calls:
        if call.after is not None and count_left(call.after) is None and count_left(call.before) is not None:
            assert call.tactic is not None
            return Fault(name=_name(call.tactic), turn=call.turn, detail=f"called {format_tactic(call.tactic)}")
    last, budget = len(trajectory.turns) - 1, find_budget(theorem, chosen)
    if trajectory.turns[-1].tool_records == () and not trajectory.stop.is_truncated:
        return Fault(name=GAVE_UP, turn=last, detail="ended the attempt with the goal open")
    num_refused = sum(call.after is None for call in calls)
    lost = [call for call in calls if call.after is None or _is_no_nearer(call)]
    if not lost or (len(calls) < budget and not num_refused):
        return None
    refused = 2 * num_refused >= len(lost)
    name = REFUSED_CALLS if refused else DETOUR
    first = next(call for call in lost if not refused or call.after is None)
    return Fault(name=name, turn=first.turn, detail=f"{len(lost)} of {len(calls)} calls led nowhere")


def count_left(state: ProofState) -> int | None:
    """Count the tactics of shortest scripts for all open goals; None if the search finds none for one of them."""
    theorem = state.theorem
    scripts = [
        find_script(goal, theorem.names, classical=theorem.classical, max_depth=MAX_DEPTH) for goal in state.goals
    ]
    found = [len(script) for script in scripts if script is not None]
    return sum(found) if len(found) == len(scripts) else None


def _is_no_nearer(call: _Call) -> bool:
    before = count_left(call.before)
    after = None if call.after is None else count_left(call.after)
    return before is not None and after is not None and after >= before


def _name(tactic: Tactic) -> str:
    if tactic.word in ("left", "right"):
        return WRONG_SIDE
    return WRONG_HYPOTHESIS if tactic.name else WRONG_TACTIC


def _list_calls(view: View, theorem: Theorem, trajectory: Trajectory) -> Iterator[_Call]:
    state = ProofState.open(theorem)
    for index, turn in enumerate(trajectory.turns):
        for record in turn.tool_records:
            tactic, after = read_tactic(record.call), None
            if tactic is not None and state.goals:
                with contextlib.suppress(Refused):
                    after = state.apply(view.read(state, tactic))
            yield _Call(turn=index, tactic=tactic, before=state, after=after)
            state = after or state
