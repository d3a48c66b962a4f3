"""Scripted planners and actors."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise_worlds.plan.world import ENTITIES, RELATIONS, draw_plan, format_plan, parse_plan, parse_question


class PlanningPolicy:
    """Plans the right relations, with probability `order` in the right order, and makes the planned calls."""

    def __init__(self, order: float) -> None:
        self._order = order

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        question, _, shown = messages[0].text.removeprefix(" question ").partition(" plan")
        right, entity = parse_question(question)
        if not shown:
            return answer_message(format_plan(right if rng.random() < self._order else tuple(reversed(right))))
        plan = parse_plan(shown)
        calls = sum(message.role == "assistant" for message in messages)
        found = entity if not calls else messages[-1].text.split()[1]
        return answer_message(f"{plan[calls]} {found}")


class RandomPolicy:
    """Plans and calls at random."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        if messages[-1].text.endswith(" plan"):
            return answer_message(format_plan(draw_plan(rng)))
        return answer_message(f"{rng.choice(RELATIONS)} {rng.choice(ENTITIES)}")
