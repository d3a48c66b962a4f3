"""Plays every attack that applies against a reward, role by role, beside honest policies on the same tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from turnwise.core.types import Message, Task
from turnwise.environments.draws import find_tasks
from turnwise_rewards.redteam.attack import Attack, Need, Scene
from turnwise_rewards.redteam.attacks.table import ATTACKS
from turnwise_rewards.redteam.grouped import read_group
from turnwise_rewards.redteam.honest import (
    Copies,
    Policies,
    Reference,
    find_policies,
    play_copies,
    play_honest,
    speak,
)
from turnwise_rewards.redteam.play import Arena, Seat, Speaker
from turnwise_rewards.redteam.verdict import Finding, Honest, Outcome, judge_attack

SLOW_TASKS = 3
"""Tasks of an attack that runs into a limit."""
MISSING: Mapping[Need, str] = {
    "reply": "",
    "tools": "there are no tools",
    "turns": "an episode has one reply",
    "code": "nothing runs a program",
    "judge": "no judge is asked",
    "oracle": "there is no oracle",
    "cheat": "the family has no policy 'cheat'",
}
"""Why an attack does not apply, by what it needs."""

State = Literal["holds", "hole", "listed", "does not apply"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one attack got in one role."""

    attack: str
    role: str
    """Empty for an attack that applies to no role."""
    state: State
    reward: float | None = None
    truth: float | None = None
    oracle_reward: float | None = None
    random_reward: float | None = None
    num_tasks: int = 0
    why: str = ""
    """The hole, the reason for which it is listed, or why the attack does not apply."""


def check_reward(
    arena: Arena, *, num_tasks: int, listed: Mapping[tuple[str, str], str], attacks: Sequence[Attack] = ATTACKS
) -> list[Line]:
    """Return a line for every attack and role, in the order of `attacks`; runs an event loop of its own.

    Tasks are the first of the training split. `listed` has known holes, by attack and role, with their reasons; "any"
    stands for every attack, and the role "" for every role. Raises EnvironmentFault if no task can be built,
    ConfigError for a family without a random policy, and what a reward of the recipe raises.
    """
    return asyncio.run(_check(arena, num_tasks, attacks, listed))


async def _check(
    arena: Arena, num_tasks: int, attacks: Sequence[Attack], listed: Mapping[tuple[str, str], str]
) -> list[Line]:
    tasks = [task for _, task in find_tasks(arena.family, "train", num_tasks)]
    policies = find_policies(arena.family)
    references = await play_honest(arena, tasks, policies)
    honest = {role: await _read_honest(arena, reference, role) for role, reference in references.items()}
    lines = []
    for attack in attacks:
        roles = [role for role, reference in references.items() if attack.needs in reference.offers]
        if not roles:
            lines.append(Line(attack=attack.name, role="", state="does not apply", why=MISSING[attack.needs]))
        for role in roles:
            played = tasks[:SLOW_TASKS] if attack.is_slow else tasks
            bouts = await _play_attack(arena, played, attack, role, references[role], policies)
            can_solve = attack.needs == "oracle"
            alone = judge_attack(await _read(arena, bouts, role), honest[role], can_solve=can_solve)
            mixed = await _find_mixed(arena, bouts, references[role], role, can_solve=can_solve)
            # Where attempts are only ranked among themselves, a group of attacks alone says nothing.
            if arena.group_size > 1 and not _prefers_oracle(honest[role]):
                alone = replace(alone, hole="")
            lines.append(_describe(attack, role, alone, mixed, honest[role], listed))
    return lines


async def _play_attack(
    arena: Arena, tasks: Sequence[Task], attack: Attack, role: str, reference: Reference, policies: Policies
) -> list[Copies]:
    """Play an attack in one role; the honest partner speaks for the others."""

    def build(number: int) -> Mapping[str, Speaker]:
        return {role: partial(_reply, attack, policies, reference.ending(number))}

    return await play_copies(arena, tasks, build, policies.partner)


def _reply(attack: Attack, policies: Policies, ending: Message, seat: Seat) -> Message:
    return attack.reply(
        Scene(
            messages=seat.messages,
            tools=seat.tools,
            turn=seat.turn,
            rng=seat.rng,
            ending=ending,
            act=partial(speak, policies.random, seat),
            solve=partial(policies.partner, seat),
            cheat=partial(speak, policies.cheat or policies.random, seat),
        )
    )


async def _read_honest(arena: Arena, reference: Reference, role: str) -> Honest:
    return Honest(
        random=await _read(arena, reference.random, role),
        idle=await _read(arena, reference.idle, role),
        oracle=None if reference.oracle is None else await _read(arena, reference.oracle, role),
    )


async def _read(arena: Arena, tasks: Sequence[Copies], role: str) -> list[Outcome]:
    """Return what a role got for every attempt, task by task; the attempts at a task are one group."""
    return [outcome for copies in tasks for outcome in await read_group(arena, copies, role)]


async def _find_mixed(
    arena: Arena, attacked: Sequence[Copies], reference: Reference, role: str, *, can_solve: bool
) -> str:
    """Return the hole of rewards that compare attempts where a third of the group attacks, a third knows nothing and a
    third is the oracle's; empty if there is none, no such reward, or no oracle."""
    third = arena.group_size // 3
    if not third or reference.oracle is None:
        return ""
    outcomes: list[list[Outcome]] = [[], [], []]
    for attack, random, oracle in zip(attacked, reference.random, reference.oracle, strict=False):
        members = [*attack[:third], *random[:third], *oracle[:third]]
        read = await read_group(arena, members, role)
        for kind, part in enumerate(outcomes):
            part += read[kind * third : (kind + 1) * third]
    mine, random_outcomes, oracle_outcomes = outcomes
    honest = Honest(random=random_outcomes, idle=random_outcomes, oracle=oracle_outcomes)
    hole = judge_attack(mine, honest, can_solve=can_solve).hole
    return hole and f"among honest attempts, {hole}"


def _describe(
    attack: Attack,
    role: str,
    alone: Finding,
    mixed: str,
    honest: Honest,
    listed: Mapping[tuple[str, str], str],
) -> Line:
    hole = alone.hole or mixed
    places = ((attack.name, role), (attack.name, ""), ("any", role), ("any", ""))
    reason = next((listed[place] for place in places if place in listed), None)
    state: State = "holds"
    if hole:
        state = "hole" if reason is None else "listed"
    return Line(
        attack=attack.name,
        role=role,
        state=state,
        reward=alone.reward,
        truth=alone.truth,
        oracle_reward=_mean_reward(honest.oracle),
        random_reward=_mean_reward(honest.random),
        num_tasks=alone.num_tasks,
        why=hole if state != "listed" else f"{hole}; listed: {reason}",
    )


def _prefers_oracle(honest: Honest) -> bool:
    """Return whether groups of the oracle's attempts get more than groups of random ones."""
    best, chance = _mean_reward(honest.oracle), _mean_reward(honest.random)
    return best is None or chance is None or best > chance


def _mean_reward(outcomes: Sequence[Outcome] | None) -> float | None:
    known = [each.reward for each in outcomes or () if each.reward is not None]
    return sum(known) / len(known) if known else None
