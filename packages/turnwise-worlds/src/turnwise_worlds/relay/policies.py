"""Scripted policies that ask, tell and answer."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise_worlds.relay.environment import ANSWER, ASK
from turnwise_worlds.relay.facts import (
    NONE,
    SLOTS,
    SLOTS_OF_A,
    draw_fact,
    find_fact,
    format_facts,
    parse_facts,
)


class TalkingPolicy:
    """Plays every role according to what it reads, each step correctly with probability `right`; with `right=1` it is
    the oracle.

    Otherwise it asks nothing, tells the first of its facts, or answers without what it heard: these replies have the
    right form, and the most frequent ones carry no information.
    """

    def __init__(self, right: float) -> None:
        self._right = right

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        *words, step = messages[-1].text.split()
        facts, is_right = words[1:5], rng.random() < self._right
        if step == ASK:
            missing = next(slot for slot in words[-2:] if slot in SLOTS_OF_A)
            return answer_message(missing if is_right else NONE)
        if step == ANSWER:
            heard = parse_facts(" ".join(words[6:-3])) if is_right else {}
            facts += heard.values()
            return answer_message(format_facts({slot: find_fact(slot, facts) for slot in words[-2:]}))
        slot = next((word for word in words[6:] if word in SLOTS_OF_A), None) if is_right else None
        fact = facts[0] if slot is None else find_fact(slot, facts)
        return answer_message(format_facts({next(slot for slot in SLOTS_OF_A if fact.startswith(slot)): fact}))


class RandomPolicy:
    """Asks and tells at random, and answers with random values."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        *words, step = messages[-1].text.split()
        if step == ASK:
            return answer_message(rng.choice(SLOTS_OF_A))
        slots = words[-2:] if step == ANSWER else [rng.choice(SLOTS)]
        return answer_message(format_facts({slot: draw_fact(slot, rng) for slot in slots}))
