"""Scripted policies that do MiniWoB++'s tasks by what they read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from random import Random

from turnwise.core.types import Message, Task, ToolCall
from turnwise_worlds.miniwob.arguments import MiniwobArguments
from turnwise_worlds.miniwob.goals import Step, Verb, find_words, lengthen, plan
from turnwise_worlds.miniwob.listing import Element, read_listing


def step_message(number: int, step: Step) -> Message:
    """Return a reply with one call; `number` counts the messages so far and makes call ids unique."""
    given = asdict(step)
    verb, text = given.pop("verb"), given.pop("text")
    if verb != "click":
        given["option" if verb == "select" else "text"] = text
    call = ToolCall(id=f"call_{number}", name=verb, arguments=json.dumps(given))
    return Message(role="assistant", content=(), tool_calls=(call,))


class DoingPolicy:
    """Does the right next step with probability `skill`, else clicks on the last element that is not the right one.
    With `skill=1` it is the oracle of the tasks in `goals.KNOWN`. Where it does not know what is right it clicks on the
    last element."""

    def __init__(self, chosen: MiniwobArguments, skill: float) -> None:
        self._chosen = chosen
        self._skill = skill

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        text = _last_page(messages)
        elements, goal = read_listing(text, self._chosen.style)
        name = task.payload["task"]
        words = lengthen(name, goal) if self._chosen.style == "short" else find_words(name, goal)
        step = plan(name, elements, words)
        if step is None or rng.random() >= self._skill:
            step = _mistake(elements, step)
        return step_message(len(messages), step)


class RandomPolicy:
    """Clicks anywhere, types and chooses anything that it reads."""

    def __init__(self, chosen: MiniwobArguments) -> None:
        self._chosen = chosen

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        text = _last_page(messages)
        elements, _ = read_listing(text, self._chosen.style)
        number = rng.randint(1, max(len(elements), 1))
        words = text.split() or ["nothing"]
        kind = elements[number - 1].kind if elements else "link"
        verb: Verb = "select" if kind == "list" else "click"
        if kind in ("field", "area") and rng.random() < 0.5:
            verb = "type"
        given = rng.choice(words) if verb != "click" else ""
        return step_message(len(messages), Step(verb=verb, number=number, text=given))


def _mistake(elements: Sequence[Element], right: Step | None) -> Step:
    """Return a click at the last element that is not the right one; where there is none, at the only one."""
    others = (number for number in range(len(elements), 0, -1) if right is None or number != right.number)
    return Step(verb="click", number=next(others, 1))


def _last_page(messages: Sequence[Message]) -> str:
    """Return the last page that was shown; answers that are errors show none."""
    return next(
        each.text for each in reversed(messages) if each.role != "assistant" and not each.text.startswith("error")
    )
