"""One theorem: the policy sees the first open goal, calls a tactic, and sees what is left, until nothing is.

user        p > q2 ; p0 ; |- q
assistant   apply name = q2
tool        p > q2 ; p0 ; |- p
assistant   apply name = p0
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from turnwise.core.protocols import StepResult
from turnwise.core.types import Invalid, Message, Reward, Scored, StopReason, Task, ToolRecord, text_message
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise_worlds.proofs.arguments import ProofsArguments, find_budget
from turnwise_worlds.proofs.kernel.check import check_proof
from turnwise_worlds.proofs.kernel.rules import Refused
from turnwise_worlds.proofs.state import ProofState
from turnwise_worlds.proofs.theorem import Theorem, theorem_of
from turnwise_worlds.proofs.view import View
from turnwise_worlds.proofs.words import REFUSED, Tactic

_RULES = (
    "Prove the goal after |- from the hypotheses above it. Call one tactic at a time; each is applied to the goal that "
    "is shown, the first of those that are open. You have {budget} calls.\n\n"
)


def build_prompt(theorem: Theorem, chosen: ProofsArguments) -> tuple[Message, ...]:
    """Build the first message: the theorem, after an explanation in the full style."""
    text = View.of(theorem, chosen).show(ProofState.open(theorem))
    rules = _RULES.format(budget=find_budget(theorem, chosen)) if chosen.style == "full" else ""
    return (text_message("user", rules + text),)


class ProofsEnvironment(ToolEnvironment):
    """The episode's state is its `ProofState` and how many calls it has made. Nothing is random."""

    def __init__(self, chosen: ProofsArguments, task: Task) -> None:
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self._chosen = chosen
        self._id = task.id
        self._theorem = theorem_of(task)
        self._view = View.of(self._theorem, chosen)
        self._budget = find_budget(self._theorem, chosen)
        self._state = ProofState.open(self._theorem)
        self._used = self._wrong = 0

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Show the theorem; offer the tactics of its logic."""
        return build_prompt(self._theorem, self._chosen), [getattr(self, name) for name in self._theorem.tactics]

    async def intro(self) -> str:
        """Assume the left side of an implication, and prove the right side."""
        return self._act(Tactic("intro"))

    async def apply(self, name: str) -> str:
        """Use a hypothesis that is the goal, or an implication that ends in it; what it needs is left to prove.

        Args:
            name: The hypothesis.
        """
        return self._act(Tactic("apply", name))

    async def split(self) -> str:
        """Prove both sides of a conjunction, the left one first."""
        return self._act(Tactic("split"))

    async def left(self) -> str:
        """Prove the left side of a disjunction."""
        return self._act(Tactic("left"))

    async def right(self) -> str:
        """Prove the right side of a disjunction."""
        return self._act(Tactic("right"))

    async def destruct(self, name: str) -> str:
        """Take a hypothesis apart: both sides of a conjunction, or the two cases of a disjunction.

        Args:
            name: The hypothesis.
        """
        return self._act(Tactic("destruct", name))

    async def exfalso(self) -> str:
        """Prove the false proposition in place of the goal."""
        return self._act(Tactic("exfalso"))

    async def contradict(self) -> str:
        """Assume that the goal is false, and prove the false proposition."""
        return self._act(Tactic("contradict"))

    async def rewrite(self, name: str) -> str:
        """Replace the left side of an equation by its right side.

        Args:
            name: The hypothesis or law.
        """
        return self._act(Tactic("rewrite", name))

    async def rewrite_back(self, name: str) -> str:
        """Replace the right side of an equation by its left side.

        Args:
            name: The hypothesis or law.
        """
        return self._act(Tactic("rewrite_back", name))

    async def reflexivity(self) -> str:
        """Prove an equation whose sides are the same."""
        return self._act(Tactic("reflexivity"))

    def _act(self, tactic: Tactic) -> str:
        self._used += 1
        refused = ""
        try:
            self._state = self._state.apply(self._view.read(self._state, tactic))
        except Refused as cause:
            self._wrong += 1
            refused = REFUSED if self._chosen.style == "terse" else f"{REFUSED}: {cause}\n"
        self.done = not self._state.goals or self._used >= self._budget
        return refused + self._view.show(self._state)

    def is_failure(self, record: ToolRecord) -> bool:
        """Return whether a tactic did not apply."""
        return record.observation.startswith(REFUSED)

    def invalid_reply(self, message: Message) -> Message:
        """Answer a malformed call like a tactic that does not apply."""
        return text_message("tool", REFUSED + self._view.show(self._state))

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`. Calls that reach no tactic count, too, and the last one ends the episode."""
        before = self._used
        result = await super().step(message)
        missed = len(message.tool_calls) + bool(message.tool_errors) - (self._used - before)
        if result.done:
            return result
        self._used, self._wrong = self._used + missed, self._wrong + missed
        is_over = self._used >= self._budget
        return replace(result, done=True, observations=()) if is_over else result

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 if the kernel accepts the whole proof for the theorem, else 0. Invalid if nothing is left to prove
        and it does not.

        Parts: `calls`, `wrong` (how many of them did not apply) and, for theorems with a script, `length_ratio`: calls
        per tactic of the script.
        """
        proof = self._state.build_proof()
        if proof is not None:
            try:
                check_proof(self._theorem.sequent, proof, classical=self._theorem.classical)
            except Refused as cause:
                return Invalid(reason=f"the kernel refuses a finished proof: {cause}", retryable=False)
        parts = {"success": float(proof is not None), "calls": self._used, "wrong": self._wrong}
        if self._theorem.script:
            parts["length_ratio"] = self._used / len(self._theorem.script)
        return Scored.of(parts["success"], parts)

    def state_hash(self) -> str:
        """Return a hash that is equal if the open goals and the calls that are left are, however they were reached."""
        goals = "\n".join(f"{goal.hypotheses} {goal.sequent.conclusion}" for goal in self._state.goals)
        return hashlib.sha256(f"{self._id} {self._budget - self._used} {goals}".encode()).hexdigest()[:16]

    async def fork(self) -> ProofsEnvironment:
        """See `ForkableEnvironment`."""
        return self.copy_episode()
