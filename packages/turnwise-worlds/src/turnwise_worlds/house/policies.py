"""Scripted policies that act in houses."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.house.arguments import HouseArguments
from turnwise_worlds.house.plan import plan_action
from turnwise_worlds.house.session import Session
from turnwise_worlds.house.styles import BLANK
from turnwise_worlds.house.world import LOOKING, VERBS, Action, list_actions


def follow(session: Session, messages: Sequence[Message]) -> Session:
    """Return a session after the commands of a conversation."""
    for message in messages:
        if message.role == "assistant":
            session = session.command(extract_answer(message.text) or "")
    return session


CLUMSINESS = 0.25
"""Share of random actions that are drawn without regard to what is possible: who imitates them learns what nothing
looks like, and how it goes on."""


class KnowingPolicy:
    """Does what leads on to the goal with probability `skill`, from knowledge of the whole house; else anything that
    would change it, mostly what is possible. With `skill=1` it is the oracle, with `skill=0` it is random. It does not
    need what it hears, but where outcomes are hidden it acts at random."""

    def __init__(self, chosen: HouseArguments, skill: float) -> None:
        self._chosen = chosen
        self._skill = skill

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        session = follow(Session.open(task.payload, self._chosen), messages)
        return answer_message(session.style.command(self._choose(session, rng)))

    def _choose(self, session: Session, rng: Random) -> Action:
        house, state = session.house, session.state
        if rng.random() < self._skill and session.heard != BLANK:
            return plan_action(house, state)
        if rng.random() < CLUMSINESS:
            verb = rng.choice([verb for verb in VERBS if verb not in LOOKING])
            return Action(verb, "" if verb == "go" else rng.choice(house.things), rng.choice(house.places))
        return rng.choice([each for each in list_actions(house, state) if each.verb not in LOOKING])
