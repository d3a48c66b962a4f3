"""A session's replies as the turns of a trajectory: conversations, and what each reply follows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from turnwise.core.episodes import MAIN
from turnwise.core.messages import drop_pixels
from turnwise.core.sampled import keep_own_experts
from turnwise.core.types import NO_SCORES, ConversationOpening, Message, Signal, ToolRecord, Turn, TurnScores
from turnwise.gateway.forest import REWRITES, Branches, Continues, Node, Refuses
from turnwise.gateway.sampling import Sampled

NO_REWARDS: Mapping[int, float] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Told:
    """Turns and how their conversations opened."""

    turns: list[Turn] = field(default_factory=list)
    openings: list[ConversationOpening] = field(default_factory=list)


def list_roots(replies: Sequence[Node]) -> dict[int, int]:
    """Return, for each reply, the one with which its conversation began from nothing."""
    roots: dict[int, int] = {}
    for node in replies:
        parent = _record(node).prompt.parent
        roots[node.index] = node.index if parent is None else roots[parent]
    return roots


def to_opening(node: Node, names: Collection[str]) -> ConversationOpening:
    """Return how the conversation that a reply begins was opened. It has the name of its role, or one of its place
    among the others, whose `names` are taken."""
    record, count = _record(node), len(names)
    prompt, name = record.prompt, f"branch{count}" if count else MAIN
    if prompt.parent is None and record.role:
        name = record.role
    if name in names:
        name = f"{name}.{count}"  # roles have no dot
    return ConversationOpening(name=name, messages=prompt.messages, tools=prompt.tools)


def to_turns(
    replies: Sequence[Node], kept: Collection[int] | None = None, rewards: Mapping[int, float] = NO_REWARDS
) -> Told:
    """Return the turns of the replies whose roots are `kept`, in the order of sampling; None keeps all. Replies that
    nobody received come last. `rewards` are those of single replies, which credit reads as the reward of the turn.

    The first request after a reply continues its conversation. Any other opens a conversation that inherits from it,
    and one with no reply before it opens a conversation from nothing. Every reply is one turn.
    """
    told, roots = Told(), list_roots(replies)
    places: dict[int, int] = {}
    nodes = {node.index: node for node in replies}
    for node in sorted(replies, key=lambda node: not node.is_delivered):  # nothing follows one that nobody received
        if kept is not None and roots[node.index] not in kept:
            continue
        record = _record(node)
        prompt, parent = record.prompt, record.prompt.parent
        if parent is not None and isinstance(record.match, Continues):
            before = told.turns[places[parent]]
            waited_s = record.began - _record(nodes[parent]).ended
            told.turns[places[parent]] = replace(
                before,
                observations=prompt.messages,
                tool_records=list_records(before, prompt.messages, waited_s),
                environment_s=waited_s,
            )
            conversation = before.conversation
        else:
            conversation = len(told.openings)
            opening = to_opening(node, [each.name for each in told.openings])
            if parent is not None:
                caller = told.openings[told.turns[places[parent]].conversation].name
                opening = replace(opening, caller=caller, inherits=True)
            told.openings.append(opening)
        places[node.index] = len(told.turns)
        told.turns.append(
            Turn(
                parent=None if parent is None else places[parent],
                context_ids=prompt.context_ids,
                images=prompt.context_images,
                completion=keep_own_experts(record.completion, len(prompt.context_ids)),
                message=record.parsed,
                conversation=conversation,
                scores=TurnScores(reward=rewards[node.index]) if node.index in rewards else NO_SCORES,
                is_received=node.is_delivered,
                engine_s=record.ended - record.began,
                signals=list_signals(record),
            )
        )
    return told


def list_signals(record: Sampled) -> tuple[Signal, ...]:
    """Return how a request found its place, as numbers that are 0 or 1: whether it continued a reply on stored tokens,
    was sampled beside another one, had rewritten the conversation, and why, or had dropped a reply's reasoning; and how
    long its reply waited for others of its session and for its first token."""
    match = record.match
    reason = "" if isinstance(match, Continues | Refuses) else match.reason
    notes = frozenset() if isinstance(match, Refuses) else match.notes
    values = {
        "continued": isinstance(match, Continues),
        "branched": isinstance(match, Branches),
        "rewritten": reason in REWRITES,
        **{f"reason_{name}": reason == name for name in REWRITES},
        "reasoning_dropped": "reasoning_dropped" in notes,
        "queue_seconds": record.watch.queue_s,
        "first_token_seconds": record.watch.first_token_s,
    }
    return tuple(Signal(name=f"gateway_{name}", value=float(value)) for name, value in values.items())


def list_records(turn: Turn, answers: Sequence[Message], seconds: float) -> tuple[ToolRecord, ...]:
    """Return the records of a reply's calls that were answered. The program ran them: how long it took for all of them
    is each one's time, and what failed in it is known to nobody else."""
    calls = {call.id: call for call in turn.message.tool_calls}
    return tuple(
        ToolRecord(
            call=calls[answer.tool_call_id],
            observation=answer.text,
            content=drop_pixels(answer.content) if answer.images else (),
            error=None,
            seconds=seconds,
        )
        for answer in answers
        if answer.tool_call_id in calls
    )


def _record(node: Node) -> Sampled:
    record: Sampled = node.record
    return record
