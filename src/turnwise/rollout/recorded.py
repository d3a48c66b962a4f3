"""Converts conversations written by others into trajectories, whose replies become completions for imitation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from turnwise.core.errors import RenderError
from turnwise.core.protocols import Renderer
from turnwise.core.types import (
    IntArray,
    Message,
    Prompt,
    Scored,
    StopReason,
    ToolSpec,
    Trajectory,
    TrajectoryId,
    Turn,
    to_ids,
)
from turnwise.rollout.conversation import Conversation
from turnwise.rollout.policies import encode_scripted

_NOTHING = Prompt(token_ids=to_ids([]))


def record_conversation(
    messages: Sequence[Message],
    trains: Sequence[bool],
    tools: Sequence[ToolSpec],
    renderer: Renderer,
    *,
    num_opening: int,
    trajectory_id: TrajectoryId,
) -> Trajectory:
    """Return a trajectory in which the assistant messages that train are sampled, each after the tokens that a rollout
    would have put before it.

    The first `num_opening` messages open the conversation; each later assistant message is a reply, and the messages
    between two replies are observations. Replies that do not train are context. If the renderer cannot append the
    observations (a template that drops earlier thoughts once the user speaks again), the conversation is opened again
    with all messages so far, as an environment would do: a new root. Log-probabilities are NaN: they are unknown.
    Raises RenderError for messages that cannot be rendered.
    """
    conversation = Conversation(renderer=renderer)
    conversation.open(messages[:num_opening], tools)
    flags: list[bool] = []
    since = num_opening
    for at in range(num_opening, len(messages)):
        if messages[at].role != "assistant":
            continue
        if at > since:
            _go_on(conversation, messages[:at], since)
        conversation.append(encode_scripted(messages[at], renderer), messages[at])
        flags.append(trains[at])
        since = at + 1
    return Trajectory(
        id=trajectory_id,
        task_id="",
        turns=keep_trained(conversation.turns, flags),
        stop=StopReason.DONE,
        reward=Scored(total=0.0),
    )


def write_whole(messages: Sequence[Message], tools: Sequence[ToolSpec], renderer: Renderer) -> IntArray:
    """Return every token of a conversation as its last message has them before it, whoever speaks last.

    Where the renderer cannot append an observation, the conversation is opened again, as in `record_conversation`.
    Raises RenderError for messages that cannot be rendered.
    """
    conversation = Conversation(renderer=renderer)
    since = next((at for at, message in enumerate(messages) if message.role == "assistant"), len(messages))
    conversation.open(messages[:since], tools)
    last = to_ids([])
    for at in range(since, len(messages)):
        if messages[at].role == "assistant":
            if at > since:
                _go_on(conversation, messages[:at], since)
            completion = encode_scripted(messages[at], renderer)
            conversation.append(completion, messages[at])
            last, since = completion.token_ids, at + 1
    if since < len(messages):
        _go_on(conversation, messages, since)
        last = to_ids([])
    return to_ids(np.concatenate([conversation.prompt_ids, last]))


def _go_on(conversation: Conversation, messages: Sequence[Message], since: int) -> None:
    """Append the messages from `since` on after the last reply, or open the conversation with all of them."""
    try:
        conversation.go_on(messages[since:])
    except RenderError:
        conversation.restart(messages, name=f"message {since}")


def keep_trained(turns: Sequence[Turn], trains: Sequence[bool]) -> tuple[Turn, ...]:
    """Return the turns that train, in order; the tokens of the others become context of the next one on their path."""
    kept: list[Turn] = []
    places: dict[int | None, int | None] = {None: None}
    """For each turn: the last one kept on its path."""
    before: dict[int | None, Prompt] = {None: _NOTHING}
    """For each turn: the tokens since then."""
    for index, (turn, is_trained) in enumerate(zip(turns, trains, strict=True)):
        earlier, parent = before[turn.parent], places[turn.parent]
        context = to_ids(np.concatenate([earlier.token_ids, turn.context_ids]))
        images = (*earlier.images, *(span.shift(len(earlier.token_ids)) for span in turn.images))
        if is_trained:
            kept.append(replace(turn, parent=parent, context_ids=context, images=images, conversation=0))
            places[index], before[index] = len(kept) - 1, _NOTHING
        else:
            ids = to_ids(np.concatenate([context, turn.completion.token_ids]))
            places[index], before[index] = parent, Prompt(token_ids=ids, images=images)
    return tuple(kept)
