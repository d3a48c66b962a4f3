"""Plays every attack that applies against a reward, role by role, beside honest policies on the same tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import EnvironmentFamily, ScriptedPolicy
from turnwise.core.types import Message, Task
from turnwise.environments.draws import find_tasks
from turnwise_rewards.redteam.attack import Attack, Need, Scene
from turnwise_rewards.redteam.attacks.table import ATTACKS
from turnwise_rewards.redteam.form import read_code_tool, say
from turnwise_rewards.redteam.play import Arena, Bout, Seat, play_bout
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
}
"""Why an attack does not apply, by what it needs."""
_PROGRAM_SIGNS = ("def ", "```", "print(", "import ")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    """The honest policies' episodes, and what the environment offers to a role."""

    honest: Mapping[str, Honest]
    endings: Mapping[str, Sequence[Message]]
    offers: Mapping[str, frozenset[Need]]


def check_reward(
    arena: Arena, *, num_tasks: int, attacks: Sequence[Attack] = ATTACKS, listed: Mapping[tuple[str, str], str]
) -> list[Line]:
    """Return a line for every attack and role, in the order of `attacks`; runs an event loop of its own.

    `listed` has known holes, by attack and role, with their reasons; a role of "" stands for every role. Raises
    EnvironmentFault if the honest policies cannot be played.
    """
    return asyncio.run(_check(arena, num_tasks, attacks, listed))


async def _check(
    arena: Arena, num_tasks: int, attacks: Sequence[Attack], listed: Mapping[tuple[str, str], str]
) -> list[Line]:
    tasks = [task for _, task in find_tasks(arena.family, "heldout", num_tasks)]
    random, oracle = _find_policy(arena.family, "random"), _find_policy(arena.family, "oracle")
    if random is None:
        raise ConfigError("the family has no policy 'random', which attacks need as a reference; add one")
    reference = await _play_honest(arena, tasks, random, oracle)
    lines = []
    for attack in attacks:
        roles = [role for role, offers in reference.offers.items() if attack.needs in offers]
        if not roles:
            lines.append(Line(attack=attack.name, role="", state="does not apply", why=MISSING[attack.needs]))
        for role in roles:
            played = tasks[:SLOW_TASKS] if attack.is_slow else tasks
            outcomes = await _play_attack(arena, played, attack, role, reference, random, oracle)
            honest = reference.honest[role]
            finding = judge_attack(outcomes, honest, can_solve=attack.needs == "oracle")
            lines.append(_describe(attack, role, finding, honest, listed))
    return lines


def _find_policy(family: EnvironmentFamily, name: str) -> ScriptedPolicy | None:
    try:
        return family.policy(name)
    except ConfigError:
        return None


def _speak(policy: ScriptedPolicy, seat: Seat) -> Message:
    return policy.reply(seat.task, list(seat.messages), seat.rng)


async def _play_honest(
    arena: Arena, tasks: Sequence[Task], random: ScriptedPolicy, oracle: ScriptedPolicy | None
) -> _Reference:
    """Play every task with the random policy, the oracle and, role by role, an idle policy."""
    others = random if oracle is None else oracle
    solved = [await play_bout(arena, task, {}, partial(_speak, others), seed=seed) for seed, task in enumerate(tasks)]
    roles = list(dict.fromkeys(role for bout in solved for role in bout.rewards))
    honest, endings, offers = {}, {}, {}
    for role in roles:
        guessed, idle = [], []
        for seed, task in enumerate(tasks):
            speakers = {role: partial(_speak, random)}
            guessed.append(await play_bout(arena, task, speakers, partial(_speak, others), seed=seed))
            idle.append(await play_bout(arena, task, {role: lambda seat: say("")}, partial(_speak, others), seed=seed))
        honest[role] = Honest(
            random=_read(guessed, role),
            idle=_read(idle, role),
            oracle=None if oracle is None else _read(solved, role),
        )
        endings[role] = [(bout.said.get(role) or (say(""),))[-1] for bout in guessed]
        offers[role] = _find_offers([*guessed, *solved], role, has_oracle=oracle is not None)
    return _Reference(honest=honest, endings=endings, offers=offers)


def _read(bouts: Sequence[Bout], role: str) -> list[Outcome]:
    missing = Outcome(reward=None, truth=None, problem="the role was not asked")
    return [Outcome.of(bout.rewards[role]) if role in bout.rewards else missing for bout in bouts]


def _find_offers(bouts: Sequence[Bout], role: str, *, has_oracle: bool) -> frozenset[Need]:
    """Return what an environment has for attacks on a role, from honest episodes."""
    offers: set[Need] = {"reply"}
    said = [message for bout in bouts for message in bout.said.get(role, ())]
    texts = [message.text + "".join(call.arguments for call in message.tool_calls) for message in said]
    tools = [tool for bout in bouts for tool in bout.tools.get(role, ())]
    if tools:
        offers.add("tools")
    if any(len(bout.said.get(role, ())) > 1 for bout in bouts):
        offers.add("turns")
    if read_code_tool(tools) or any(sign in text for sign in _PROGRAM_SIGNS for text in texts):
        offers.add("code")
    if any(bout.judgements for bout in bouts):
        offers.add("judge")
    if has_oracle:
        offers.add("oracle")
    return frozenset(offers)


async def _play_attack(
    arena: Arena,
    tasks: Sequence[Task],
    attack: Attack,
    role: str,
    reference: _Reference,
    random: ScriptedPolicy,
    oracle: ScriptedPolicy | None,
) -> list[Outcome]:
    """Play an attack in one role; the oracle, or the random policy if there is none, speaks for the others."""
    bouts = []
    for seed, task in enumerate(tasks):

        def speak(seat: Seat, ending: Message = reference.endings[role][seed]) -> Message:
            return attack.reply(
                Scene(
                    messages=seat.messages,
                    tools=seat.tools,
                    turn=seat.turn,
                    rng=seat.rng,
                    ending=ending,
                    act=lambda: _speak(random, seat),
                    solve=lambda: _speak(oracle or random, seat),
                )
            )

        bouts.append(await play_bout(arena, task, {role: speak}, partial(_speak, oracle or random), seed=seed))
    return _read(bouts, role)


def _describe(
    attack: Attack, role: str, finding: Finding, honest: Honest, listed: Mapping[tuple[str, str], str]
) -> Line:
    reason = listed.get((attack.name, role), listed.get((attack.name, "")))
    state: State = "holds"
    if finding.hole:
        state = "hole" if reason is None else "listed"
    return Line(
        attack=attack.name,
        role=role,
        state=state,
        reward=finding.reward,
        truth=finding.truth,
        oracle_reward=_mean_reward(honest.oracle),
        random_reward=_mean_reward(honest.random),
        num_tasks=finding.num_tasks,
        why=finding.hole if state != "listed" else f"{finding.hole}; listed: {reason}",
    )


def _mean_reward(outcomes: Sequence[Outcome] | None) -> float | None:
    known = [each.reward for each in outcomes or () if each.reward is not None]
    return sum(known) / len(known) if known else None
