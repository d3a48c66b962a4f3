"""One question: a planner writes which relations to look up; an actor sees the plan and makes the calls.

    planner   question birthplace of author of kalo plan
              <answer> author ; birthplace </answer>
    actor     question birthplace of author of kalo plan author ; birthplace call
              <answer> author kalo </answer>
              found mife call
              <answer> birthplace mife </answer>

The planner's conversation ends with the plan, and the actor's starts only with the plan that it is shown: so the plan
can be replaced, and the effect on the calls can be measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.core.episodes import Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.errors import EnvironmentFault
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, text_message
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.plan.arguments import PlanArguments
from turnwise_worlds.plan.world import NO_RELATION, Plan, draw_plan, format_plan, look_up, parse_plan

PLANNER, ACTOR = "planner", "actor"
"""The roles; their conversations have the same names."""
NUM_CALLS = 2


def build_prompt(question: str, plan: Plan | None) -> tuple[Message, ...]:
    """Build the opening of the actor, or of the planner if `plan` is None."""
    end = "plan" if plan is None else f"plan {format_plan(plan)} call"
    return (text_message("user", f" question {question} {end}"),)


class PlanEnvironment:
    """Implements `AskingEnvironment`. Everything random comes from the task's seed."""

    def __init__(self, chosen: PlanArguments) -> None:
        self.spec = EpisodeSpec(
            roles=(RoleSpec(name=PLANNER), RoleSpec(name=ACTOR)), max_replies=1 + NUM_CALLS, can_replay=True
        )
        self._chosen = chosen
        self._written: Plan = ()
        self._shown: Plan = ()
        self._calls: list[str] = []
        """Relations that were looked up."""
        self._reached = ""

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask for the plan."""
        self._seed, self._question = int(task.payload["seed"]), str(task.payload["question"])
        self._right = tuple(task.payload["plan"])
        self._reached = self._start = str(task.payload["entity"])
        return Asked(asks=(Ask(conversation=PLANNER, role=PLANNER, messages=build_prompt(self._question, None)),))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Accept the plan, or a call. Raises EnvironmentFault for a conversation that was not asked."""
        text = extract_answer(reply.text) or ""
        if conversation == PLANNER and not self._shown:
            self._written = parse_plan(text)
            self._shown = self._replace_plan()
            opening = build_prompt(self._question, self._shown)
            return Asked(asks=(Ask(conversation=ACTOR, role=ACTOR, messages=opening),))
        if conversation != ACTOR or not self._shown:
            raise EnvironmentFault(f"PlanEnvironment got a reply in {conversation!r}, where it had not asked for one")
        relation, _, entity = text.strip().partition(" ")
        self._calls.append(relation)
        self._reached = look_up(self._seed, relation, entity.strip())
        if len(self._calls) == NUM_CALLS:
            return Asked(asks=())
        found = text_message("user", f" found {self._reached} call")
        return Asked(asks=(Ask(conversation=ACTOR, role=ACTOR, messages=(found,)),))

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Return 1 for both roles if the last call found the answer, else 0.

        Parts: "success" (see `PlanArguments.success`), "planned", whether the planner's own plan is right, and
        "followed", whether the actor looked up the relations of the shown plan, in its order.
        """
        answered = end.stop is StopReason.DONE and self._reached == self._answer
        followed = tuple(self._calls) == self._shown
        parts = {
            "success": answered if self._chosen.success == "answer" else followed,
            "planned": self._written == self._right,
            "followed": followed,
        }
        return dict.fromkeys((PLANNER, ACTOR), Scored.of(float(answered), parts))

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    @property
    def _answer(self) -> str:
        at = self._start
        for relation in self._right:
            at = look_up(self._seed, relation, at)
        return at

    def _replace_plan(self) -> Plan:
        if self._chosen.plan == "given":
            return self._right
        if self._chosen.plan == "swapped":
            return tuple(reversed(self._written))
        if self._chosen.plan == "shuffled":
            return draw_plan(rng(self._seed, "shuffled plan"))
        return self._written if self._chosen.plan == "own" else (NO_RELATION, NO_RELATION)
