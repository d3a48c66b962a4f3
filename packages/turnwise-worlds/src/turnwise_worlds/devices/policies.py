"""Scripted users. They know what has to be done where, and read the screen for the way there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from random import Random
from typing import Any

from turnwise.core.errors import ToolFailure
from turnwise.core.types import Message, Task, text_message
from turnwise_worlds.devices.apps import LABELS
from turnwise_worlds.devices.arguments import DevicesArguments
from turnwise_worlds.devices.desktop import is_icon
from turnwise_worlds.devices.environment import ACTORS, open_session
from turnwise_worlds.devices.goals import Goal
from turnwise_worlds.devices.replies import read_object
from turnwise_worlds.devices.session import Session
from turnwise_worlds.web.page import TYPED

Reply = dict[str, Any]


class UsingPolicy:
    """Does the next right thing with probability `skill`, else taps anywhere, as it always does where the screen is
    blank. With `skill=1` it is the oracle."""

    def __init__(self, chosen: DevicesArguments, skill: float) -> None:
        self._chosen = chosen
        self._skill = skill

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        goal, session = _follow(task.payload, messages)
        hand: Hand = HANDS[task.payload["kind"]](session)
        is_skilled = rng.random() < self._skill and self._chosen.screen == "shown"
        return text_message("assistant", json.dumps(_choose(goal, hand) if is_skilled else _tap_anywhere(hand, rng)))


class RandomPolicy(UsingPolicy):
    """Taps anywhere, scrolls, writes a word, ends."""

    def __init__(self, chosen: DevicesArguments) -> None:
        super().__init__(chosen, 0.0)


def _follow(payload: Mapping[str, Any], messages: Sequence[Message]) -> tuple[Goal, Session]:
    """Return a task's goal, and its session after the replies of a conversation."""
    texts = tuple(message.text for message in messages if message.role == "assistant")
    task = tuple(sorted(payload.items()))
    for end in range(0, len(texts), _STRIDE):  # each starts from one that is known: recursion stays flat
        _play(task, texts[:end])
    return _play(task, texts)


_STRIDE = 100


@lru_cache(maxsize=4096)
def _play(task: tuple[tuple[str, Any], ...], texts: tuple[str, ...]) -> tuple[Goal, Session]:
    if not texts:
        return open_session(dict(task))
    goal, session = _play(task, texts[:-1])
    try:
        return goal, ACTORS[dict(task)["kind"]](session, read_object(texts[-1]))
    except ToolFailure:
        return goal, session


class PhoneHand:
    """What a user of a phone does, in AndroidWorld's actions."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def tap(self, number: int) -> Reply:
        return {"action_type": "click", "index": number - 1}

    def fill(self, number: int, text: str) -> Reply:
        return {"action_type": "input_text", "index": number - 1, "text": text, "clear_text": True}

    def scroll(self, sign: int) -> Reply:
        return {"action_type": "scroll", "direction": "down" if sign > 0 else "up"}

    def open(self, app: str) -> Reply:
        return {"action_type": "open_app", "app_name": LABELS[app]}

    def finish(self, answer: str) -> Reply:
        if answer != self.session.answer:
            return {"action_type": "answer", "text": answer}
        return {"action_type": "status", "goal_status": "complete"}


class DesktopHand:
    """What a user of a desktop does, in OSWorld's actions."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def tap(self, number: int) -> Reply:
        x, y = self.session.screen.place_of(number)
        icon = is_icon(self.session.screen, number)
        return {"action_type": "DOUBLE_CLICK" if icon else "CLICK", "x": x, "y": y}

    def fill(self, number: int, text: str) -> Reply:
        node, screen = self.session.screen.page.find(number), self.session.screen
        if screen.focus != number:
            return self.tap(number)
        if node is not None and node.value and not self.session.selects_all:
            return {"action_type": "HOTKEY", "keys": ["ctrl", "a"]}
        return {"action_type": "TYPING", "text": text}

    def scroll(self, sign: int) -> Reply:
        return {"action_type": "SCROLL", "dx": 0, "dy": -10 * sign}

    def open(self, app: str) -> Reply:
        screen = self.session.screen
        if screen.path != "/":
            return {"action_type": "HOTKEY", "keys": ["win", "d"]}
        number = next(node.number for node in screen.page.nodes if node.name == LABELS[app])
        return self.tap(number or 1)

    def finish(self, answer: str) -> Reply:
        return {"action_type": "DONE", **({"text": answer} if answer else {})}


Hand = PhoneHand | DesktopHand
HANDS: Mapping[str, Callable[[Session], Hand]] = {"phone": PhoneHand, "desktop": DesktopHand}


def _choose(goal: Goal, hand: Hand) -> Reply:
    """Return the next action on a shortest way: to the page, through the form or to the button, and the end."""
    screen = hand.session.screen
    if screen.device.content == goal.wanted.content and (not goal.answer or screen.path == goal.path):
        return hand.finish(goal.answer)
    if screen.path != goal.path:
        return _go_on(goal, hand)
    for name, value in goal.values.items():
        node = next((node for node in screen.page.nodes if node.role in TYPED and node.target == name), None)
        if node is not None and node.number is not None and node.value != value:
            return _reach(hand, node.number, partial(hand.fill, text=value))
    button = goal.button or "Save"
    node = next((node for node in screen.page.nodes if node.role == "button" and node.name == button), None)
    # What was deleted or done twice cannot be mended here.
    return hand.finish("") if node is None or node.number is None else _reach(hand, node.number, hand.tap)


def _go_on(goal: Goal, hand: Hand) -> Reply:
    """Return the action that leads nearer to the goal's page: the link to it or to the page above it, else the app."""
    screen, parts = hand.session.screen, goal.path.split("/")
    stops = [goal.path, "/".join(parts[:3])]
    entry = goal.device.find(int(parts[2])) if parts[2:] and parts[2].isdigit() else None
    if entry is not None and entry.folder:
        stops.append(f"/{entry.app}/{entry.folder}")
    for stop in stops:
        node = next((node for node in screen.page.nodes if node.role == "link" and node.target == stop), None)
        if node is not None and node.number is not None:
            return _reach(hand, node.number, hand.tap)
    return hand.open(parts[1])


def _reach(hand: Hand, number: int, act: Callable[[int], Reply]) -> Reply:
    """Return the action on an element, or a scroll towards it."""
    numbers = [line.number for line in hand.session.screen.visible if line.number is not None]
    if number in numbers:
        return act(number)
    return hand.scroll(1 if not numbers or number > max(numbers) else -1)


def _tap_anywhere(hand: Hand, random: Random) -> Reply:
    numbers = [line.number for line in hand.session.screen.visible if line.number is not None]
    chance = random.random()
    if chance < 0.1:
        return hand.scroll(random.choice((1, -1)))
    if chance < 0.2 or not numbers:
        return hand.open(random.choice(list(LABELS)))
    if chance < 0.23:
        return hand.finish("")
    number = random.choice(numbers)
    node = hand.session.screen.page.find(number)
    return hand.fill(number, "kalo") if node is not None and node.role in TYPED else hand.tap(number)
