"""Scripted policies that read pages by their pixels.

What a page's pictures show follows from the task and the zooms, so the policies draw them again; under a control they
see what the control shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import numpy as np

from turnwise.core.pictures import Pixels
from turnwise.core.types import Message, Task, ToolCall
from turnwise.environments.replies import answer_message
from turnwise_worlds.pages.arguments import PagesArguments
from turnwise_worlds.pages.page import CELL, DIGITS, GREY, SIDE, read_digit
from turnwise_worlds.pages.view import View

Place = tuple[int, int]
"""Row and column of a part of a picture, counted from 0."""
_SALIENT = 45
"""How far a pixel's channels are apart, at least, where a cell has a colour."""


def zoom_message(place: Place, number: int) -> Message:
    """Return a reply that zooms; `number` counts the messages so far and makes call ids unique."""
    arguments = json.dumps({"row": place[0] + 1, "column": place[1] + 1})
    call = ToolCall(id=f"call_{number}", name="zoom", arguments=arguments)
    return Message(role="assistant", content=(), tool_calls=(call,))


def follow(view: View, messages: Sequence[Message]) -> list[View]:
    """Return the view before any zoom, and after each zoom of a conversation."""
    views = [view]
    for message in messages:
        for call in message.tool_calls:
            given = json.loads(call.arguments)
            views.append(views[-1].zoom(given["row"] - 1, given["column"] - 1))
    return views


def find_places(picture: Pixels) -> tuple[list[Place], list[Place]]:
    """Return the parts of a picture with a red cell, and those with a cell of another colour."""
    part = CELL // SIDE
    levels = picture.astype(np.int16)
    coloured = np.ptp(levels, axis=2) > _SALIENT
    red = coloured & (levels[:, :, 0] - levels[:, :, 1:].max(2) > _SALIENT)
    places = []
    for mask in (red, coloured & ~red):
        rows, columns = np.nonzero(mask.reshape(SIDE, part, SIDE, part).any((1, 3)))
        places.append(list(zip(rows.tolist(), columns.tolist(), strict=True)))
    return places[0], places[1]


def is_blank(picture: Pixels) -> bool:
    """Return whether a picture is the grey one of a control."""
    return bool((picture == GREY).all())


class ReadingPolicy:
    """Zooms until it has read as many digits as the overview has red cells, at least one, and answers the largest.

    Each zoom is at a red cell with probability `skill`, else at a cell of another colour if there is one. With
    `skill=1` it is the oracle. What it has read it always answers; where nothing can be read it guesses.
    """

    def __init__(self, chosen: PagesArguments, skill: float) -> None:
        self._chosen = chosen
        self._skill = skill

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        views = follow(View.open(task.payload, self._chosen), messages)
        pictures = [view.draw() for view in views]
        overview = pictures[0]
        done = [digit for picture in pictures if (digit := read_digit(picture)) is not None]
        done += [rng.randrange(DIGITS) for picture in pictures[1:] if is_blank(picture)]
        red, _ = find_places(overview)
        if len(done) >= max(1, len(red)) or len(views) > SIDE:
            return answer_message(str(max(done) if done else rng.randrange(DIGITS)))
        base = overview if read_digit(pictures[-1]) is not None or is_blank(pictures[-1]) else pictures[-1]
        red, others = find_places(base)
        tried = [views[0].area.find(cell) for cell in views[-1].shown]
        red, others = ([place for place in places if place not in tried] for places in (red, others))
        if red and (not others or rng.random() < self._skill):
            return zoom_message(red[0], len(messages))
        place = rng.choice(others) if others else (rng.randrange(SIDE), rng.randrange(SIDE))
        return zoom_message(place, len(messages))


class RandomPolicy:
    """Zooms at random, or answers a random digit."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        if rng.random() < 0.5:
            return zoom_message((rng.randrange(SIDE), rng.randrange(SIDE)), len(messages))
        return answer_message(str(rng.randrange(DIGITS)))
