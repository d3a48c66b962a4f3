"""One theorem in Coq.

user        p > q2 ; p0 ; |- q
assistant   apply name = q2
tool        p > q2 ; p0 ; |- p
assistant   apply name = p0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MethodType

from turnwise.core.types import Message, Task, text_message
from turnwise_worlds.coq.arguments import CoqArguments
from turnwise_worlds.coq.sentences import check_tactic
from turnwise_worlds.coq.theorem import CoqTheorem
from turnwise_worlds.coq.words import DESCRIPTIONS, WORDS, show_terse, tell_hypotheses, write_sentence
from turnwise_worlds.proofs.words import Tactic, find_name
from turnwise_worlds.proving.environment import REFUSED, ProvingEnvironment
from turnwise_worlds.proving.prover import Goal, Prover, TacticRefused


class CoqEnvironment(ProvingEnvironment):
    """An episode in either style."""

    prover_name = "Coq"

    def __init__(self, chosen: CoqArguments, prover: Prover, task: Task) -> None:
        given = CoqTheorem.from_json(task.payload)
        budget = len(given.script) + chosen.slack if given.script else chosen.budget
        super().__init__(chosen, prover, task, given.theorem, budget)
        self._style = chosen.style
        self._heads = chosen.tactics
        self._names = given.names

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """See `ProvingEnvironment.setup`; the terse style shows the state only."""
        messages, tools = await super().setup(task, seed)
        return (messages if self._style == "full" else (text_message("user", self.show()),)), tools

    def list_tools(self) -> Sequence[Callable[..., object]]:
        """See `ProvingEnvironment.list_tools`; the terse style has one for each tactic."""
        return [self.tactic] if self._style == "full" else [MethodType(tool, self) for tool in _TOOLS]

    def act(self, text: str) -> str:
        """See `ProvingEnvironment.act`. Nothing but an allowed tactic reaches Coq."""
        try:
            sentence = check_tactic(text, self._heads)
        except TacticRefused as cause:
            return self.refuse(cause)
        return super().act(sentence)

    def use(self, tactic: Tactic) -> str:
        """Apply the tactic of a short call, and return what the policy sees then. Raises ProverLost."""
        try:
            goal = self._state.goals[0]
            found = replace(tactic, name=find_name(tactic.name, tell_hypotheses(goal)))
            sentence = write_sentence(found, goal, self._names)
        except TacticRefused as cause:
            return self.refuse(cause)
        return super().act(sentence)

    def write(self, goals: Sequence[Goal]) -> str:
        """See `ProvingEnvironment.write`."""
        return super().write(goals) if self._style == "full" else show_terse(goals[0])

    def show_refusal(self, cause: TacticRefused) -> str:
        """See `ProvingEnvironment.show_refusal`; the terse style gives no reason."""
        return super().show_refusal(cause) if self._style == "full" else REFUSED

    def list_names(self) -> Sequence[str]:
        """See `ProvingEnvironment.list_names`; made theorems have names of their own."""
        return super().list_names() if self._style == "full" else self._names


def _build_tool(word: str) -> Callable[..., str]:
    """Return the tool of a tactic: a method with its name, its description and its arguments."""

    def with_name(self: CoqEnvironment, name: str) -> str:
        return self.use(Tactic(word, name))

    def without(self: CoqEnvironment) -> str:
        return self.use(Tactic(word))

    tool: Callable[..., str] = without
    description, what = DESCRIPTIONS[word], "variable" if word == "induction" else "hypothesis, such as q2"
    if WORDS[word].takes_name:
        tool = with_name
        description += f"\n\nArgs:\n    name: The {what}.\n"
    tool.__name__ = tool.__qualname__ = word
    tool.__doc__ = description
    del tool.__annotations__["self"]  # as in any method: what has a type here is an argument of the tool
    return tool


_TOOLS = [_build_tool(word) for word in WORDS]
"""Made once, as reading a tool's signature takes longer than a tactic."""
