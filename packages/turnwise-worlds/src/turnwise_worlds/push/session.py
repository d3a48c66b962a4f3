"""An episode in progress: a body, and what is shown of it under the switches of `PushArguments`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.core.errors import ToolFailure
from turnwise.core.messages import Part, TextPart
from turnwise.core.types import Message
from turnwise.pictures.read import read_picture
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.push.arguments import PushArguments
from turnwise_worlds.push.bins import Action, Bins, read_chunk
from turnwise_worlds.push.body import Body, CellBody
from turnwise_worlds.push.show import describe, draw, draw_blank
from turnwise_worlds.push.table import read_payload


def read_reply(reply: Message, chosen: PushArguments) -> tuple[Action, ...]:
    """Return the actions of a reply: of its answer, or else of all its text. Raises ToolFailure as `read_chunk`."""
    answer = extract_answer(reply.text)
    return read_chunk(reply.text if answer is None else answer, bins_of(chosen), chosen.chunk)


def bins_of(chosen: PushArguments) -> Bins:
    """Return the bins of an axis."""
    return Bins(count=chosen.bins, reach=chosen.reach)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An episode between two replies."""

    chosen: PushArguments
    body: Body

    @staticmethod
    def open(payload: Mapping[str, Any], chosen: PushArguments) -> Session:
        """Return the session of a task before any action. Raises ConfigError where MuJoCo is missing."""
        table = read_payload(payload)
        if chosen.body == "cells":
            return Session(chosen=chosen, body=CellBody(table))
        from turnwise_worlds.push.physics import MujocoBody

        return Session(chosen=chosen, body=MujocoBody.open(table))

    def act(self, actions: Sequence[Action]) -> Session:
        """Return the session after a chunk: it stops at the first action that solves the table."""
        body, bins = self.body, bins_of(self.chosen)
        for right, up in actions:
            if body.table.is_solved:
                break
            body = body.act((bins.to_cells(right), bins.to_cells(up)))
        return Session(chosen=self.chosen, body=body)

    def follow(self, messages: Sequence[Message]) -> Session:
        """Return the session after the replies of a conversation; malformed ones do nothing."""
        session = self
        for message in messages:
            if message.role == "assistant":
                try:
                    session = session.act(read_reply(message, self.chosen))
                except ToolFailure:
                    continue
        return session

    def show(self) -> tuple[Part, ...]:
        """Return the parts of a message that shows the table."""
        chosen, hides_goal = self.chosen, self.chosen.goal == "hidden"
        if chosen.surface == "words":
            return (TextPart(text=describe(self.body.table, chosen.style, hides_goal=hides_goal)),)
        if chosen.picture == "blank":
            picture = draw_blank()
        elif chosen.camera == "egl":
            from turnwise_worlds.push.photograph import photograph
            from turnwise_worlds.push.physics import MujocoBody

            assert isinstance(self.body, MujocoBody)
            picture = photograph(self.body, hides_goal=hides_goal)
        else:
            picture = draw(self.body.table, hides_goal=hides_goal)
        return (read_picture(picture, label="table"),)
