"""Scripted policies that call tactics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from random import Random

from turnwise.core.types import Message, Task, ToolCall
from turnwise.environments.replies import answer_message
from turnwise_worlds.proofs.arguments import ProofsArguments, find_budget
from turnwise_worlds.proofs.kernel.rules import Refused
from turnwise_worlds.proofs.search import MAX_DEPTH, find_script
from turnwise_worlds.proofs.state import ProofState
from turnwise_worlds.proofs.theorem import theorem_of
from turnwise_worlds.proofs.view import View
from turnwise_worlds.proofs.words import TACTICS, Tactic

GIVEN_UP = "stuck"
"""The answer of a policy that gives up."""


def tactic_message(number: int, tactic: Tactic) -> Message:
    """Return a reply with one call; `number` counts the messages so far and makes call ids unique."""
    arguments = {"name": tactic.name} if TACTICS[tactic.word].takes_name else {}
    call = ToolCall(id=f"call_{number}", name=tactic.word, arguments=json.dumps(arguments))
    return Message(role="assistant", content=(), tool_calls=(call,))


def read_tactic(call: ToolCall) -> Tactic | None:
    """Return the tactic of a call; None if it is none, or its argument is no name."""
    word = TACTICS.get(call.name)
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return None
    if word is None or not isinstance(arguments, dict):
        return None
    name = arguments.get("name", "") if word.takes_name else ""
    return Tactic(call.name, name) if isinstance(name, str) else None


def follow(view: View, state: ProofState, messages: Sequence[Message]) -> tuple[ProofState, list[Tactic]]:
    """Return a state after the calls of a conversation, and the tactics that applied, with the names of the theorem."""
    applied = []
    for call in (call for message in messages for call in message.tool_calls):
        tactic = read_tactic(call)
        try:
            if tactic is not None:
                read = view.read(state, tactic)
                state = state.apply(read)
                applied.append(read)
        except Refused:
            continue
    return state, applied


class ProvingPolicy:
    """Calls the right tactic with probability `skill`, else any that applies; gives up where none does. The right one
    is that of the script, or, off its path, the first of a shortest script for the goal. With `skill=1` it is the
    oracle. It uses names as they are shown, and where nothing is shown it calls any tactic."""

    def __init__(self, chosen: ProofsArguments, skill: float) -> None:
        self._chosen = chosen
        self._skill = skill

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        theorem = theorem_of(task)
        view, number = View.of(theorem, self._chosen), len(messages)
        state, applied = follow(view, ProofState.open(theorem), messages)
        if self._chosen.shown == "hidden" or not state.goals:
            return tactic_message(number, draw_tactic(view, state, rng))
        tactic = None
        if rng.random() < self._skill:
            calls = sum(len(message.tool_calls) for message in messages)
            tactic = self._find(state, applied, find_budget(theorem, self._chosen) - calls)
        if tactic is None:
            applicable = list_applicable(state)
            if not applicable:
                return answer_message(GIVEN_UP)
            tactic = rng.choice(applicable)
        return tactic_message(number, Tactic(tactic.word, view.call(state, tactic.name)))

    def _find(self, state: ProofState, applied: Sequence[Tactic], left: int) -> Tactic | None:
        theorem = state.theorem
        if list(theorem.script[: len(applied)]) == list(applied) and len(applied) < len(theorem.script):
            return theorem.script[len(applied)]
        depth = min(left, MAX_DEPTH)
        found = find_script(state.goals[0], theorem.names, classical=theorem.classical, max_depth=depth)
        return None if found is None else found[0]


class RandomPolicy:
    """Calls any tactic."""

    def __init__(self, chosen: ProofsArguments) -> None:
        self._chosen = chosen

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        view = View.of(theorem_of(task), self._chosen)
        state, _ = follow(view, ProofState.open(theorem_of(task)), messages)
        return tactic_message(len(messages), draw_tactic(view, state, rng))


def list_applicable(state: ProofState) -> list[Tactic]:
    """Return every tactic that applies to the first open goal; `exfalso` only if some hypothesis is about `F`."""
    found = []
    has_false = any("Falsehood" in repr(formula) for _, formula in state.goals[0].hypotheses)
    for word in [word for word in state.theorem.tactics if word != "exfalso" or has_false]:
        for name in [name for name, _ in state.goals[0].hypotheses] if TACTICS[word].takes_name else [""]:
            with suppress(Refused):
                state.apply(Tactic(word, name))
                found.append(Tactic(word, name))
    return found


def draw_tactic(view: View, state: ProofState, rng: Random) -> Tactic:
    """Draw a tactic of the theorem's logic, and a hypothesis of the goal where it takes one."""
    theorem = state.theorem
    shown = [view.call(state, name) for name, _ in state.goals[0].hypotheses] if state.goals else []
    # Half of the calls are `apply`, as in scripts.
    word = rng.choice(state.theorem.tactics)
    if not theorem.is_equational and rng.random() < 0.5:
        word = "apply"
    if not TACTICS[word].takes_name:
        return Tactic(word)
    return Tactic(word, rng.choice(shown)) if shown else Tactic("intro")
