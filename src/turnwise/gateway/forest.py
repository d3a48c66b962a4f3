"""What a session has received and sampled: a forest of messages, in which every request finds its place by meaning.

A node is a context message, which a client wrote, or a reply, which was sampled. A request is walked from its root (the
tools, the model and the template) along its messages:

    system, user                        a new root: Opens
    system, user, reply 1, tool         Continues reply 1, whose token ids are stored
    system, user, reply 1, tool'        Branches after reply 1
    system, user, reply 1', tool        Opens: the client rewrote what was sampled

Nothing here waits or knows tokens; `record` of a node is whatever its session stores with a reply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from turnwise.core.episodes import ANY_REQUESTS, RequestRule
from turnwise.core.messages import Message, to_plain_text
from turnwise.gateway.keys import extend_chain, find_difference, is_same_thought, message_keys, reply_key

Reason = Literal[
    "first", "new", "tools", "edited", "rewritten", "reasoning", "foreign", "resampled", "answered", "unrenderable"
]
"""Why a request did not continue the latest reply of a conversation.

- first: the session's first request; new: a conversation that begins with other messages
- tools: the same first message with other tools, model or template
- edited: an earlier message by the client is not the one received before
- rewritten: an earlier reply is not the one delivered; reasoning: it came without its reasoning, and the context
  follows the request; foreign: an assistant message that was never sampled here
- resampled: the same messages again; answered: other messages after a reply that was continued already
- unrenderable: no appended tokens can express what is new
"""
REWRITES: tuple[Reason, ...] = ("edited", "rewritten", "reasoning", "foreign", "unrenderable")
"""Reasons of a request whose earlier messages cannot be kept as they were received and sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continues:
    """The first request after a reply."""

    after: int
    """The reply that is continued: a node."""
    tail: tuple[Message, ...]
    """The messages after it."""
    notes: frozenset[str] = frozenset()
    """"reasoning_dropped": the client sent a reply without its reasoning. "ambiguous": several replies have the
    same meaning, and the latest was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """A further request at a place where one was answered before: sampled beside that answer, on stored token ids."""

    after: int | None
    """The reply that both follow; None if both open a conversation with the same messages."""
    tail: tuple[Message, ...]
    reason: Reason
    beside: int | None = None
    """A reply to the same messages: a node. None if there is none."""
    notes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opens:
    """A conversation that is rendered from its first message."""

    messages: tuple[Message, ...]
    reason: Reason
    detail: str = ""
    """What differs from an earlier conversation; empty if nothing is worth saying."""
    notes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuses:
    """A request that has no place."""

    field: str
    problem: str
    reason: Reason | None = None
    """Why it would open a conversation, if such requests are refused; None if it could not be answered at all."""


Match = Continues | Branches | Opens | Refuses


@dataclass(slots=True, kw_only=True, eq=False)
class Node:
    """One message."""

    index: int
    parent: int | None
    """The message before it; None for the first one."""
    chain: bytes
    """The keys from the root to here."""
    root: bytes
    message: Message
    """As received, or as delivered."""
    is_reply: bool = False
    is_taken: bool = False
    """A request has continued this reply."""
    is_delivered: bool = False
    """The client has received this reply, or its echo proves that it has."""
    record: Any = None


@dataclass(slots=True, kw_only=True, eq=False)
class Walk:
    """How far the messages of a request are known."""

    at: int | None = None
    """The deepest known message; None at the root."""
    steps: int = 0
    """Number of known messages."""
    reply: int | None = None
    """The last reply on the way."""
    tail_from: int = 0
    """Index of the first message after that reply."""
    notes: set[str] = field(default_factory=set)


class Forest:
    """The messages of one session, its replies, and their ids."""

    def __init__(self, salt: bytes, rule: RequestRule = ANY_REQUESTS) -> None:
        """`salt` makes the ids of calls and replies unguessable, and different from those of other sessions."""
        self._rule, self._is_exact = rule, rule.reasoning == "follow"
        self.nodes: list[Node] = []
        self.num_replies = 0
        self._salt = salt
        self._children: dict[tuple[bytes, int | None], dict[bytes, list[int]]] = {}
        """Nodes by root and parent, then by key. The root counts below the root only."""
        self._ids: dict[str, int] = {}
        self._first: dict[bytes, int] = {}
        """The first request's opening message by its key, for the reason "tools"."""

    def match(self, root: bytes, messages: Sequence[Message], *, after: int | None = None) -> Match:
        """Find the place of a request. Changes nothing.

        `after` is the reply that the request names as the one it continues, whose path `messages` begins with; None if
        it is recognised by its messages.
        """
        if not messages or messages[-1].role == "assistant":
            return Refuses(field="messages", problem="must end with a message that is not the assistant's")
        if (refusal := _find_unknown_call(messages)) is not None:
            return refusal
        if after is not None and self.nodes[after].root != root:
            return Opens(messages=tuple(messages), reason="tools", detail="the tools or the model have changed")
        keys = message_keys(messages)
        walk = self._walk(root, messages, keys, after)
        notes, tail = frozenset(walk.notes), tuple(messages[walk.tail_from :])
        beside = self._find_reply_below(walk.at) if walk.steps == len(messages) else None
        if walk.reply is None or any(message.role == "assistant" for message in tail):
            if beside is not None:
                return Branches(after=None, tail=tuple(messages), reason="resampled", beside=beside, notes=notes)
            reason, detail = self._explain(root, messages, keys, walk)
            if (refusal := self.refuse_rewrite(reason, detail)) is not None:
                return refusal
            notes |= {"reasoning_dropped"} if reason == "reasoning" else set()
            return Opens(messages=tuple(messages), reason=reason, detail=detail, notes=notes)
        if not self.nodes[walk.reply].is_taken:
            return Continues(after=walk.reply, tail=tail, notes=notes)
        reason = "answered" if beside is None else "resampled"
        return Branches(after=walk.reply, tail=tail, reason=reason, beside=beside, notes=notes)

    def refuse_rewrite(self, reason: Reason, detail: str) -> Refuses | None:
        """Return the refusal of a request that would open a conversation for a reason; None if it may."""
        if self._rule.on_rewrite == "branch" or reason not in REWRITES:
            return None
        stated = f"{detail}; send the conversation as it was received and answered, or allow on_rewrite = branch"
        return Refuses(field="messages", problem=stated, reason=reason)

    def take(self, match: Match) -> None:
        """Note that a request is being answered at its place, so that another one there is a branch."""
        if isinstance(match, Continues):
            self.nodes[match.after].is_taken = True

    def release(self, match: Match) -> None:
        """Note that a request got no answer: the next one at its place continues."""
        if isinstance(match, Continues):
            self.nodes[match.after].is_taken = False

    def commit(
        self, root: bytes, messages: Sequence[Message], match: Match, reply: Message, record: Any = None
    ) -> Node:
        """Add a reply where its request was matched. Its calls get ids by which later requests are recognised."""
        keys = message_keys(messages)
        after = match.after if isinstance(match, Continues | Branches) else None
        if after is None:
            walk = self._walk(root, messages, keys)
            at, steps = walk.at, walk.steps
        else:
            assert isinstance(match, Continues | Branches)
            at, steps = after, len(messages) - len(match.tail)
        for message, key in zip(messages[steps:], keys[steps:], strict=True):
            known = [node.index for node in self._named(root, at, key) if not node.is_reply]
            at = known[0] if known else self._add(root, at, key, message).index
        index = len(self.nodes)
        calls = tuple(
            replace(call, id=self.make_id("call", index, number)) for number, call in enumerate(reply.tool_calls)
        )
        for call in calls:
            self.name(call.id, index)
        reply = replace(reply, tool_calls=calls)
        node = self._add(root, at, reply_key(reply), reply)
        node.is_reply, node.record = True, record
        self.num_replies += 1
        return node

    def make_id(self, kind: str, *numbers: int) -> str:
        """Return an id for a reply or a call: its kind and 24 characters that depend on session and numbers."""
        written = " ".join((kind, *map(str, numbers)))
        return f"{kind}_{hashlib.blake2b(written.encode(), key=self._salt[:64], digest_size=12).hexdigest()}"

    def name(self, issued: str, index: int) -> None:
        """Note that an id belongs to a reply."""
        self._ids[issued] = index

    def find(self, issued: str) -> Node | None:
        """Return the reply that an id belongs to; None if this session issued no such id."""
        index = self._ids.get(issued)
        return None if index is None or index >= len(self.nodes) else self.nodes[index]

    def path(self, index: int | None) -> list[Message]:
        """Return the messages from the first one to a node, inclusive."""
        return [node.message for node in self.path_nodes(index)]

    def path_nodes(self, index: int | None) -> list[Node]:
        """Return the nodes from the first one to a node, inclusive."""
        nodes = []
        while index is not None:
            nodes.append(self.nodes[index])
            index = self.nodes[index].parent
        return nodes[::-1]

    def deliver(self, index: int) -> None:
        """Note that the client has received a reply."""
        self.nodes[index].is_delivered = True

    def acknowledge(self, root: bytes, messages: Sequence[Message], after: int | None = None) -> None:
        """Note that the replies that a request echoes have arrived, and the one that it names (`after`)."""
        keys = message_keys(messages)
        for is_exact in {self._is_exact, False}:  # an echo without its reasoning has arrived as well
            walk = self._walk(root, messages, keys, after, is_exact=is_exact)
            for node in self.path_nodes(walk.at):
                node.is_delivered = node.is_delivered or node.is_reply

    @property
    def replies(self) -> list[Node]:
        """Every reply, in the order of sampling."""
        return [node for node in self.nodes if node.is_reply]

    def _walk(
        self,
        root: bytes,
        messages: Sequence[Message],
        keys: Sequence[bytes],
        after: int | None = None,
        *,
        is_exact: bool | None = None,
    ) -> Walk:
        walk, is_exact = Walk(), self._is_exact if is_exact is None else is_exact
        if after is not None:
            steps = len(self.path_nodes(after))
            walk = Walk(at=after, steps=steps, reply=after, tail_from=steps)
        for at in range(walk.steps, len(messages)):
            nodes = self._named(root, walk.at, keys[at])
            replies = [
                node
                for node in nodes
                if node.is_reply and is_same_thought(node.message, messages[at], is_exact=is_exact)
            ]
            found = self._choose(messages[at], replies, walk)
            found = found or next((node for node in nodes if not node.is_reply), None)
            if found is None:
                return walk
            walk.at, walk.steps = found.index, at + 1
            if found.is_reply:
                walk.reply, walk.tail_from = found.index, at + 1
        return walk

    def _choose(self, message: Message, replies: Sequence[Node], walk: Walk) -> Node | None:
        """Return the reply that an assistant message is an echo of, among those with its meaning."""
        ids = [call.id for call in message.tool_calls]
        named = [node for node in replies if ids and ids == [call.id for call in node.message.tool_calls]]
        thought = [node for node in replies if message.reasoning and node.message.reasoning]
        delivered = [node for node in replies if node.is_delivered]
        found = next((some for some in (named, thought, delivered, replies) if some), None)
        if found is None:
            return None
        if len(found) > 1:
            walk.notes.add("ambiguous")
        if found[-1].message.reasoning and not message.reasoning:
            walk.notes.add("reasoning_dropped")
        return found[-1]

    def _add(self, root: bytes, parent: int | None, key: bytes, message: Message) -> Node:
        chain = extend_chain(root if parent is None else self.nodes[parent].chain, key)
        node = Node(index=len(self.nodes), parent=parent, chain=chain, root=root, message=message)
        self.nodes.append(node)
        self._children.setdefault((root if parent is None else b"", parent), {}).setdefault(key, []).append(node.index)
        if parent is None:
            self._first.setdefault(key, node.index)
        return node

    def _named(self, root: bytes, at: int | None, key: bytes) -> list[Node]:
        """Return the messages with a key below a node, or below the root."""
        below = self._children.get((root if at is None else b"", at), {})
        return [self.nodes[index] for index in below.get(key, ())]

    def _below(self, root: bytes, at: int | None) -> list[Node]:
        below = self._children.get((root if at is None else b"", at), {})
        return [self.nodes[index] for indices in below.values() for index in indices]

    def _find_reply_below(self, at: int | None) -> int | None:
        """Return the latest reply to a message; None if there is none."""
        replies = [] if at is None else [node.index for node in self._below(b"", at) if node.is_reply]
        return max(replies, default=None)

    def _explain(
        self, root: bytes, messages: Sequence[Message], keys: Sequence[bytes], walk: Walk
    ) -> tuple[Reason, str]:
        """Say why a request opens a conversation."""
        if not self.nodes:
            return "first", ""
        if walk.steps == 0:
            return self._explain_opening(root, messages[0], keys[0])
        if walk.steps == len(messages):  # the beginning of another conversation, or foreign as before
            return "new", ""
        message, at = messages[walk.steps], walk.steps
        if message.role != "assistant":
            if walk.reply is None and not any(later.role == "assistant" for later in messages[at:]):
                return "new", ""  # another question after the same system message
            others = [to_plain_text(node.message) for node in self._below(root, walk.at) if not node.is_reply]
            difference = f": {show_difference(others[-1], to_plain_text(message))}" if others else ""
            return "edited", f"messages[{at}] is not the one received before{difference}"
        named = [node for call in message.tool_calls if (node := self.find(call.id)) and node.parent == walk.at]
        sampled = named or [node for node in self._below(root, walk.at) if node.is_reply and node.is_delivered]
        if not sampled:
            return "foreign", f"messages[{at}] was not sampled here"
        field = find_difference(sampled[-1].message, message, is_exact=self._is_exact)
        if field == "reasoning" and not message.reasoning:
            return "reasoning", f"messages[{at}] came without the reasoning of the delivered reply"
        return "rewritten", f"messages[{at}] is not the delivered reply: {field}"

    def _explain_opening(self, root: bytes, message: Message, key: bytes) -> tuple[Reason, str]:
        if key in self._first:
            return "tools", "the same first message came with other tools or another model before"
        openings = [node for node in self._below(root, None) if node.message.role == message.role]
        if not openings or message.role != "system":
            return "new", ""
        return (
            "new",
            f"another system message: {show_difference(to_plain_text(openings[-1].message), to_plain_text(message))}",
        )


def _find_unknown_call(messages: Sequence[Message]) -> Refuses | None:
    """Return a refusal if a tool message answers a call that no message before it made."""
    known: set[str] = set()
    for at, message in enumerate(messages):
        known |= {call.id for call in message.tool_calls}
        if message.role == "tool" and message.tool_call_id and message.tool_call_id not in known:
            return Refuses(
                field=f"messages[{at}].tool_call_id",
                problem=f"{message.tool_call_id[:60]!r} is no call of an earlier message",
            )
    return None


def show_difference(before: str, after: str, width: int = 20) -> str:
    """Return where two texts begin to differ, and what is there in both."""
    at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    return f"from character {at} {before[at : at + width]!r} became {after[at : at + width]!r}"
