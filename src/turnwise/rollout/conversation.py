"""The tokens of one trajectory while it grows: prompt ids, turns and their parents.

The rollout loop, demonstrations and the audit's re-rendering drive it: each opens a conversation, replies, observes,
and may restart with a fresh context. Text becomes token ids once, here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from turnwise.core.episodes import MAIN, Asked
from turnwise.core.errors import EnvironmentFault
from turnwise.core.keys import Span
from turnwise.core.messages import drop_pixels, without_pixels
from turnwise.core.prompts import extend_prompt, open_prompt
from turnwise.core.protocols import Renderer
from turnwise.core.sampled import keep_own_experts
from turnwise.core.types import Completion, ConversationOpening, IntArray, Message, Prompt, ToolSpec, Turn, to_ids


@dataclass(slots=True, kw_only=True, eq=False)
class Conversation:
    """A conversation up to where the next reply is sampled, with every turn so far."""

    renderer: Renderer
    tools: tuple[ToolSpec, ...] = ()
    prompt_ids: IntArray = field(default_factory=lambda: to_ids([]))
    """Tokens on which the next reply is conditioned."""
    context_ids: IntArray = field(default_factory=lambda: to_ids([]))
    """The end of `prompt_ids`: tokens appended since the last reply."""
    images: tuple[Span, ...] = ()
    """Places of pictures in `prompt_ids`."""
    context_images: tuple[Span, ...] = ()
    """Places of pictures in `context_ids`, counted from its start."""
    replies: tuple[Message, ...] = ()
    """All replies, including those before a fork or a restart."""
    turns: list[Turn] = field(default_factory=list)
    """Turns since this object was created; a fork starts with none."""
    parent: int | None = None
    """Index in `turns` of the turn that the next reply follows; None if the reply starts a conversation or a fork."""
    openings: list[ConversationOpening] = field(default_factory=list)
    base: tuple[str, int] | None = None
    """The conversation on whose history this one opened, and the index of its turn that the first reply follows; None
    if it opened with an empty history."""

    def open(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, name: str = "main", caller: str | None = None
    ) -> None:
        """Begin with these messages. Raises RenderError when they cannot be rendered."""
        self.tools = tuple(tools)
        prompt = open_prompt(self.renderer, messages, self.tools)
        self.prompt_ids = self.context_ids = prompt.token_ids
        self.images = self.context_images = prompt.images
        self.parent = None
        shown = tuple(map(without_pixels, messages))
        self.openings.append(ConversationOpening(name=name, messages=shown, tools=self.tools, caller=caller))

    def restart(self, messages: Sequence[Message], *, name: str) -> None:
        """Continue in a fresh context that holds only `messages`: a new root of the same trajectory."""
        self.open(messages, self.tools, name=name)

    def reply(self, completion: Completion, *, state: str | None = None, engine_s: float = 0.0) -> Message:
        """Append the tokens sampled after `prompt_ids`. Returns the parsed reply."""
        message = self.renderer.parse(self.prompt_ids, completion.token_ids, self.tools)
        self.append(completion, message, state=state, engine_s=engine_s)
        return message

    def append(
        self, completion: Completion, message: Message, *, state: str | None = None, engine_s: float = 0.0
    ) -> None:
        """Append a reply given as a message, for demonstrations."""
        self.turns.append(
            Turn(
                parent=self.parent,
                context_ids=self.context_ids,
                images=self.context_images,
                completion=keep_own_experts(completion, len(self.context_ids)),
                message=message,
                state=state,
                conversation=max(0, len(self.openings) - 1),
                engine_s=engine_s,
            )
        )
        self.parent = len(self.turns) - 1
        self.replies = (*self.replies, message)

    def observe(self, asked: Asked, *, environment_s: float = 0.0) -> None:
        """Record the environment's answer to the last reply."""
        self.turns[-1] = replace(
            self.turns[-1],
            observations=tuple(map(without_pixels, asked.observations)),
            tool_records=tuple(replace(each, content=drop_pixels(each.content)) for each in asked.tool_records),
            scores=asked.scores,
            signals=asked.signals,
            environment_s=environment_s,
        )

    def go_on(self, observations: Sequence[Message]) -> None:
        """Extend the prompt after the last reply.

        Raises EnvironmentFault if nothing was observed, RenderError if the observations cannot be appended.
        """
        self.turns[-1] = replace(self.turns[-1], observations=tuple(map(without_pixels, observations)))
        if not observations:
            raise EnvironmentFault(
                "the environment neither ended the episode nor returned an observation; return observations or "
                "done=True"
            )
        sampled = self.turns[-1].completion.token_ids
        appended = extend_prompt(self.renderer, self.prompt_ids, sampled, observations, self.tools)
        self.context_ids, self.context_images = appended.token_ids, appended.images
        length = len(self.prompt_ids) + len(sampled)
        self.prompt_ids = to_ids(np.concatenate([self.prompt_ids, sampled, self.context_ids]))
        self.images = (*self.images, *(span.shift(length) for span in appended.images))

    def fork(self) -> Conversation:
        """Return a second conversation at the same position, without turns."""
        return replace(self, turns=[], parent=None, openings=list(self.openings))

    @property
    def prompt(self) -> Prompt:
        """What the next reply is conditioned on."""
        return Prompt(token_ids=self.prompt_ids, images=self.images)

    @property
    def messages(self) -> list[Message]:
        """Return the opening, then every reply with the observations after it, for scripted policies."""
        turns = (message for turn in self.turns for message in (turn.message, *turn.observations))
        return [*self.openings[-1].messages, *turns]

    def call(self, messages: Sequence[Message], *, name: str, caller: str) -> Conversation:
        """Open a conversation on top of this one, named `caller`, after its last reply and before anything is observed.

        Raises EnvironmentFault if there are no messages, RenderError if they cannot be appended.
        """
        called = replace(self, turns=list(self.turns), replies=())
        called.go_on(messages)
        opening = ConversationOpening(
            name=name, messages=tuple(map(without_pixels, messages)), tools=self.tools, caller=caller, inherits=True
        )
        return replace(called, turns=[], parent=None, openings=[opening], base=(caller, len(self.turns) - 1))


def leave_out_prompt(
    openings: Sequence[ConversationOpening], prompt: Sequence[Message]
) -> tuple[ConversationOpening, ...]:
    """Return the openings to store: none if the only one is named `MAIN` and equals the task's `prompt`."""
    return () if [(each.name, each.messages) for each in openings] == [(MAIN, tuple(prompt))] else tuple(openings)


def merge_turns(said: Sequence[str], conversations: Mapping[str, Conversation]) -> tuple[Turn, ...]:
    """Merge the turns of several conversations, by name, into one forest; `said` names the conversation of every turn.

    A turn's parent counts from its conversation's own first turn, and comes before it; so does a conversation's base.
    """
    places = {name: place for place, name in enumerate(conversations)}
    indices: dict[str, list[int]] = {name: [] for name in conversations}
    merged: list[Turn] = []
    for name in said:
        conversation, own = conversations[name], indices[name]
        turn = conversation.turns[len(own)]
        parent = None if turn.parent is None else own[turn.parent]
        if turn.parent is None and conversation.base is not None:
            caller, index = conversation.base
            parent = indices[caller][index]
        own.append(len(merged))
        merged.append(replace(turn, parent=parent, conversation=places[name]))
    return tuple(merged)
