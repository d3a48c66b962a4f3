"""Plays the honest policies that attacks are compared with, and finds out what an environment has to attack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import EnvironmentFamily, ScriptedPolicy
from turnwise.core.types import Message, Task
from turnwise_rewards.redteam.attack import Need
from turnwise_rewards.redteam.form import read_code_tool, say
from turnwise_rewards.redteam.play import Arena, Bout, Seat, Speaker, play_bout

_PROGRAM_SIGNS = ("def ", "```", "print(", "import ")

Copies = Sequence[Bout]
"""Attempts at one task; one, or as many as the recipe's `[rewards]` see together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The scripted policies of a family."""

    random: ScriptedPolicy
    oracle: ScriptedPolicy | None
    cheat: ScriptedPolicy | None
    """What the family itself knows of how it can be cheated."""

    @property
    def partner(self) -> Speaker:
        """Who speaks for the roles that are not attacked: the oracle, or the random policy if there is none."""
        return partial(speak, self.oracle or self.random)


def find_policies(family: EnvironmentFamily) -> Policies:
    """Return the policies. Raises ConfigError for a family without a random one."""
    random = _find(family, "random")
    if random is None:
        raise ConfigError("the family has no policy 'random', whose form attacks take; add one to its policies")
    return Policies(random=random, oracle=_find(family, "oracle"), cheat=_find(family, "cheat"))


def _find(family: EnvironmentFamily, name: str) -> ScriptedPolicy | None:
    try:
        return family.policy(name)
    except ConfigError:
        return None


def speak(policy: ScriptedPolicy, seat: Seat) -> Message:
    """Reply as a scripted policy does."""
    return policy.reply(seat.task, list(seat.messages), seat.rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The honest attempts at every task, for one role."""

    random: Sequence[Copies]
    """The random policy in this role."""
    idle: Sequence[Copies]
    """Nothing said in this role."""
    oracle: Sequence[Copies] | None
    """None if there is no oracle."""
    offers: frozenset[Need]
    """What the environment has for attacks in this role."""

    def ending(self, number: int) -> Message:
        """Return how the random policy ended the task with this number."""
        return self.random[number][0].last(self._role)

    _role: str


async def play_copies(
    arena: Arena, tasks: Sequence[Task], build: Callable[[int], Mapping[str, Speaker]], default: Speaker
) -> list[Copies]:
    """Play every task, as often as an arena's rewards see attempts together; `build` makes the speakers of a task by
    its number."""
    return [
        [
            await play_bout(arena, task, build(number), default, seed=number * arena.group_size + copy)
            for copy in range(arena.group_size)
        ]
        for number, task in enumerate(tasks)
    ]


async def play_honest(arena: Arena, tasks: Sequence[Task], policies: Policies) -> dict[str, Reference]:
    """Return the honest attempts by role, in the order in which roles were asked."""
    partner = policies.partner
    solved = await play_copies(arena, tasks, lambda number: {}, partner)
    references = {}
    for role in dict.fromkeys(role for copies in solved for bout in copies for role in bout.rewards):
        speakers: dict[str, Speaker] = {role: partial(speak, policies.random)}
        silent: dict[str, Speaker] = {role: lambda seat: say("")}
        random = await play_copies(arena, tasks, lambda number, chosen=speakers: chosen, partner)  # type: ignore[misc]
        idle = await play_copies(arena, tasks, lambda number, chosen=silent: chosen, partner)  # type: ignore[misc]
        bouts = [bout for copies in (*random, *solved) for bout in copies]
        references[role] = Reference(
            random=random,
            idle=idle,
            oracle=solved if policies.oracle else None,
            offers=_find_offers(bouts, role) | _find_kept(policies),
            _role=role,
        )
    return references


def _find_kept(policies: Policies) -> frozenset[Need]:
    """Return which of the policies that attacks may play the family has."""
    kept: set[Need] = set()
    if policies.oracle is not None:
        kept.add("oracle")
    if policies.cheat is not None:
        kept.add("cheat")
    return frozenset(kept)


def _find_offers(bouts: Sequence[Bout], role: str) -> frozenset[Need]:
    """Return what an environment has for attacks on a role, from honest attempts."""
    offers: set[Need] = {"reply"}
    replies = [bout.replies.get(role, ()) for bout in bouts]
    messages = [replied.message for each in replies for replied in each]
    texts = [message.text + "".join(call.arguments for call in message.tool_calls) for message in messages]
    tools = [tool for bout in bouts for tool in bout.tools.get(role, ())]
    if tools:
        offers |= {"tools", "turns"}
    if any(len(each) > 1 for each in replies):
        offers.add("turns")
    if read_code_tool(tools) or any(sign in text for sign in _PROGRAM_SIGNS for text in texts):
        offers.add("code")
    if any(bout.judgements for bout in bouts):
        offers.add("judge")
    return frozenset(offers)
