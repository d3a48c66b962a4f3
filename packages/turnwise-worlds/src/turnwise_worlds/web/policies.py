"""Scripted visitors. They read the pages that the policy would read, and know what a task asks for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from turnwise.core.errors import ToolFailure
from turnwise.core.types import Message, Task, ToolCall, Trajectory
from turnwise_worlds.web.actions import Action, Back, Click, Goto, Scroll, Select, Stop, Type
from turnwise_worlds.web.arguments import WebArguments
from turnwise_worlds.web.environment import open_visit
from turnwise_worlds.web.goals.tasks import make_visit
from turnwise_worlds.web.named import find_named, find_search
from turnwise_worlds.web.page import TYPED, Page, options_of
from turnwise_worlds.web.scripts import SCRIPTS, Sight, shop
from turnwise_worlds.web.site.state import State
from turnwise_worlds.web.surfaces.surface import Seen
from turnwise_worlds.web.surfaces.text import TextSurface


def read_action(name: str, arguments: str, page: Page) -> Action:
    """Return what a call with these JSON arguments does on a page. Raises ToolFailure as the environment does."""
    given = json.loads(arguments)
    match name:
        case "search":
            return find_search(page, given["query"])
        case "click" if "name" in given:
            return find_named(page, given["name"])
        case "click":
            return Click(given["number"])
        case "type":
            return Type(given["number"], given["text"], given.get("enter", False))
        case "select":
            return Select(given["number"], given["option"])
        case "scroll":
            return Scroll(given["direction"])
        case "back":
            return Back()
        case "goto":
            return Goto(given["path"])
    return Stop(given.get("answer", ""))


def write_call(action: Action, page: Page, chosen: WebArguments, number: int) -> Message:
    """Return the reply that does an action; `number` counts the messages so far and makes call ids unique."""
    name, arguments = _describe(action, page, chosen)
    call = ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments))
    return Message(role="assistant", content=(), tool_calls=(call,))


def _describe(action: Action, page: Page, chosen: WebArguments) -> tuple[str, dict[str, object]]:
    by_name = chosen.actions == "webshop"
    match action:
        case Click(number):
            node = page.find(number)
            return "click", {"name": node.name if node else ""} if by_name else {"number": number}
        case Type(_, text, _) if by_name:
            return "search", {"query": text}
        case Type(number, text, enter):
            return "type", {"number": number, "text": text, **({"enter": True} if enter else {})}
        case Select(number, option):
            return "select", {"number": number, "option": option}
        case Scroll(direction):
            return "scroll", {"direction": direction}
        case Back():
            return "back", {}
        case Goto(path):
            return "goto", {"path": path}
        case Stop(answer):
            return "stop", {"answer": answer} if answer else {}
    raise ValueError(f"{action} is no action of scripted visitors")


def follow(chosen: WebArguments, task: Task, messages: Sequence[Message]) -> tuple[Seen, tuple[str, ...]]:
    """Do the actions of a conversation again, as text; returns what is shown, and the addresses that were seen."""
    made = tuple((call.name, call.arguments) for message in messages for call in message.tool_calls)
    return _follow(_key_of(chosen, task), made)[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Where an action of a visit led."""

    turn: int
    """Index of the turn that made it."""
    page: Page
    url: str
    state: State


def retrace(chosen: WebArguments, task: Task, trajectory: Trajectory) -> list[Step]:
    """Do the actions of a stored visit again, as text; returns where each led. Those that were refused led nowhere."""
    steps: list[Step] = []
    made: tuple[tuple[str, str], ...] = ()
    for turn, each in enumerate(trajectory.turns):
        for record in each.tool_records:
            if record.error is None:
                made = (*made, (record.call.name, record.call.arguments))
                surface, seen, _ = _follow(_key_of(chosen, task), made)
                steps.append(Step(turn=turn, page=seen.page, url=seen.url, state=surface.state))
    return steps


def _key_of(chosen: WebArguments, task: Task) -> tuple[Any, ...]:
    return task.payload["kind"], task.payload["seed"], chosen.site, chosen.lure, chosen.page == "shuffled"


@lru_cache(maxsize=4096)
def _follow(key: tuple[Any, ...], made: tuple[tuple[str, str], ...]) -> tuple[TextSurface, Seen, tuple[str, ...]]:
    """Return the surface after some calls: that after all but the last, which a conversation has met before, and one
    action more."""
    if not made:
        kind, seed, style, lure, disguised = key
        visit = make_visit({"kind": kind, "seed": seed}, style, lure=lure, disguised=disguised)
        surface = TextSurface()
        seen = surface.start(visit.state)
        return surface, seen, (seen.url,)
    before, seen, urls = _follow(key, made[:-1])
    surface = before.fork()
    try:
        seen = surface.move(read_action(*made[-1], seen.page))
    except ToolFailure:
        return surface, seen, urls
    return surface, seen, (*urls, seen.url)


class ScriptedVisitor:
    """Does what the kind of the task takes; each choice is right with probability `skill`, else anything of the same
    sort. With `skill=1` it is the oracle. Where pages are blank it stops."""

    def __init__(self, chosen: WebArguments, skill: float) -> None:
        self._chosen = chosen
        self._skill = skill

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        visit = open_visit(self._chosen, task)
        seen, urls = follow(self._chosen, task, messages)
        page = Page(title="", nodes=()) if self._chosen.page == "blank" else seen.page
        num_replies = sum(message.role == "assistant" for message in messages)
        sight = Sight(page=page, url=seen.url, urls=urls, turn=num_replies, rng=rng, skill=self._skill)
        action = shop(visit, sight) if visit.purchase else SCRIPTS[task.payload["kind"]](visit, sight)
        return write_call(action, seen.page, self._chosen, len(messages))


class RandomVisitor:
    """Clicks on anything, types a word of the task, chooses any option, or goes back."""

    def __init__(self, chosen: WebArguments) -> None:
        self._chosen = chosen

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        visit = open_visit(self._chosen, task)
        seen, _ = follow(self._chosen, task, messages)
        nodes = [node for node in seen.page.nodes if node.number is not None]
        words = visit.question.split()
        action: Action = Back()
        if nodes and rng.random() < 0.9:
            node = rng.choice(nodes)
            number = node.number or 0
            if node.role in TYPED:
                action = Type(number, rng.choice(words), enter=True)
            elif node.role == "combobox":
                action = Select(number, rng.choice(options_of(seen.page, number)))
            else:
                action = Click(number)
        return write_call(action, seen.page, self._chosen, len(messages))
