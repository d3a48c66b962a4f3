"""One theorem in a prover: the policy sees the goals, sends a tactic, and sees what is left, until nothing is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

from turnwise.core.protocols import StepResult
from turnwise.core.types import Invalid, Message, Reward, Scored, StopReason, Task, ToolRecord, text_message
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise_worlds.proving.arguments import ProvingArguments
from turnwise_worlds.proving.prover import Goal, Prover, ProverLost, TacticRefused, Theorem
from turnwise_worlds.proving.show import HIDDEN, rename, show_state, shuffle_names

REFUSED = " no"
"""What a tactic without effect is answered, before the reason."""
STRANGE = tuple("abcdefghijkl")
"""Names that hypotheses are shown under, besides their own, where names are shuffled."""
RULES = (
    "Prove this theorem with {prover}, one tactic at a time. The tool `tactic` applies a tactic to the first goal and "
    "shows what is left. You have {budget} calls.\n\n"
)


class ProvingEnvironment(ToolEnvironment):
    """The episode's state is the prover's `ProofState` and how many replies there were. Nothing is random."""

    prover_name = "the prover"

    def __init__(self, chosen: ProvingArguments, prover: Prover, task: Task, theorem: Theorem, budget: int) -> None:
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self._chosen = chosen
        self._prover = prover
        self._id = task.id
        self._theorem = theorem
        self._budget = budget
        self._num_replies = self._num_refused = 0
        self.problem = ""
        """Why a finished proof is none; empty before `score`."""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Show the theorem; offer the tool. Raises ProverLost."""
        self._state = await self.thread.run(lambda: self._prover.start(self._theorem))
        rules = RULES.format(prover=self.prover_name, budget=self._budget)
        return (text_message("user", rules + self.show()),), self.list_tools()

    def list_tools(self) -> Sequence[Callable[..., object]]:
        """Return the tools of the episode."""
        return [self.tactic]

    def tactic(self, text: str) -> str:
        """Apply one tactic to the first goal.

        Args:
            text: The tactic, such as `intros n`.
        """
        return self.act(text)

    def act(self, text: str) -> str:
        """Apply a tactic, and return what the policy sees then. Raises ProverLost."""
        try:
            state = self._prover.apply(self._state, text)
            if state.goals == self._state.goals:
                raise TacticRefused("wrong", "it changes nothing")
        except TacticRefused as cause:
            return self.refuse(cause)
        self._state = state
        self.done = not self._state.goals
        return self.show()

    def refuse(self, cause: TacticRefused) -> str:
        """Return what the policy sees after a tactic without effect."""
        self._num_refused += 1
        return self.show_refusal(cause) + self.show()

    def show(self) -> str:
        """Write the state for the policy."""
        if self._chosen.shown == "hidden":
            return HIDDEN
        if not self._state.goals:
            return show_state(())
        first, *others = self._state.goals
        return self.write([rename(first, self.shown_names), *others])

    def write(self, goals: Sequence[Goal]) -> str:
        """Write goals, of which there is at least one."""
        return show_state(goals)

    @cached_property
    def shown_names(self) -> dict[str, str]:
        """The name under which a hypothesis is shown, where it is not its own."""
        if self._chosen.shown != "shuffled":
            return {}
        return shuffle_names(self.list_names(), self._chosen.seed)

    def list_names(self) -> Sequence[str]:
        """Return the names that hypotheses may have."""
        return [*STRANGE, *(name for name, _ in self._state.goals[0].hypotheses)]

    def show_refusal(self, cause: TacticRefused) -> str:
        """Write why a tactic has no effect."""
        return f"{REFUSED}: {cause}\n"

    def is_failure(self, record: ToolRecord) -> bool:
        """Return whether a tactic had no effect."""
        return record.observation.startswith(REFUSED)

    def invalid_reply(self, message: Message) -> Message:
        """Answer a malformed call like a tactic without effect."""
        return text_message("tool", f"{REFUSED}{self.show()}")

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`. The last reply ends the episode."""
        self._num_replies += 1
        result = await super().step(message)
        is_over = not result.done and self._num_replies >= self._budget
        return replace(result, done=True, observations=()) if is_over else result

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 if nothing is left to prove and a fresh prover accepts the whole proof, else 0. Invalid, and to be
        repeated, if the prover was lost.

        Parts: "success", "finished", whether nothing was left to prove, "replies", and "refused", how many tactics had
        no effect.
        """
        is_finished = not self._state.goals
        accepted = False
        if is_finished:
            try:
                verdict = await self.thread.run(lambda: self._prover.verify(self._theorem, self._state.script))
                accepted, self.problem = verdict.accepted, verdict.reason
            except ProverLost as lost:
                return Invalid(reason=str(lost), retryable=True)
        parts = {
            "success": float(accepted),
            "finished": float(is_finished),
            "replies": self._num_replies,
            "refused": self._num_refused,
        }
        return Scored.of(float(accepted), parts)

    @property
    def script(self) -> tuple[str, ...]:
        """The accepted tactics so far."""
        return self._state.script

    def state_hash(self) -> str:
        """Return a hash that is equal if the goals and the replies that are left are, however they were reached."""
        left = f"{self._id} {self._budget - self._num_replies} {self._state.goals}"
        return hashlib.sha256(left.encode()).hexdigest()[:16]

    async def fork(self) -> ProvingEnvironment:
        """See `ForkableEnvironment`."""
        return self.copy_episode()
