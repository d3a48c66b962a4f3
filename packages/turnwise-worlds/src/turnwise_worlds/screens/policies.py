"""Scripted policies that operate screens by the elements that are shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from turnwise.core.types import Message, Task, ToolCall
from turnwise_worlds.screens.arguments import ScreensArguments
from turnwise_worlds.screens.screen import SIDE, WORDS, Cell, Element, Screen
from turnwise_worlds.screens.session import Session


def act_message(number: int, name: str, **arguments: Any) -> Message:
    """Return a reply with one call; `number` counts the messages so far and makes call ids unique."""
    call = ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments))
    return Message(role="assistant", content=(), tool_calls=(call,))


def click_message(number: int, cell: Cell) -> Message:
    """Return a reply that clicks at a cell."""
    return act_message(number, "click", row=cell[0] + 1, column=cell[1] + 1)


def follow(session: Session, messages: Sequence[Message]) -> Session:
    """Return a session after the actions of a conversation."""
    for message in messages:
        for call in message.tool_calls:
            session = session.act(_read_action(call.name, json.loads(call.arguments)))
    return session


def _read_action(name: str, given: dict[str, Any]) -> Any:
    if name == "click":
        return lambda screen: screen.click((given["row"] - 1, given["column"] - 1))
    return lambda screen: getattr(screen, name)(*given.values())


class OperatingPolicy:
    """Clicks on what the task names with probability `skill`, else on another element of its role; scrolls down while
    the item is not shown, with probability `skill` too, else clicks on one that is. Writes the word that the task
    names, and then clicks on "ok". With `skill=1` it is the oracle. Where nothing is shown it clicks anywhere."""

    def __init__(self, chosen: ScreensArguments, skill: float) -> None:
        self._chosen = chosen
        self._skill = skill

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        session = follow(Session.open(task.payload, self._chosen), messages)
        elements, screen, number = session.elements, session.screen, len(messages)
        if not elements:
            return click_message(number, (rng.randrange(SIDE), rng.randrange(SIDE)))
        focus = next((each for each in elements if each.has_focus), None)
        if focus is not None:
            ok = next(each for each in elements if each.role == "ok")
            return click_message(number, ok.cell) if focus.text else act_message(number, "type", text=screen.word)
        wanted = self._find(elements, screen, rng)
        return act_message(number, "scroll", direction="down") if wanted is None else click_message(number, wanted.cell)

    def _find(self, elements: Sequence[Element], screen: Screen, rng: Random) -> Element | None:
        """Return the element to click on; None to scroll."""
        right = next((each for each in elements if each.colour == screen.target), None)
        others = [each for each in elements if each.colour and each is not right]
        is_skilled = rng.random() < self._skill
        if is_skilled and (right is not None or screen.kind == "list"):
            return right
        return rng.choice(others)


class RandomPolicy:
    """Clicks anywhere, types any word, scrolls."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        number = len(messages)
        match rng.randrange(6):
            case 0:
                return act_message(number, "type", text=rng.choice(WORDS))
            case 1:
                return act_message(number, "scroll", direction=rng.choice(("up", "down")))
        return click_message(number, (rng.randrange(SIDE), rng.randrange(SIDE)))
