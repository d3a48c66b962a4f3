"""Plays attempts by a script: replies of the oracle, then the fault, then replies until the attempt is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from turnwise.badcases.planned import leave_out_malformed
from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import EnvironmentFamily, ScriptedPolicy
from turnwise.core.types import Invalid, Message, StopReason, Task, ToolCallError, Trajectory
from turnwise.environments.episodes import play_episode
from turnwise.testing.builders import make_trajectory, make_turn

Reply = Message | Callable[[Sequence[Message]], Message]
"""A reply, or a function of the conversation so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One fault in one attempt."""

    name: str
    turn: int | None
    """The turn in which it is planted; None where no single turn is it."""
    family: EnvironmentFamily
    task: Task
    index: int
    """Place of the task in the held-out split."""
    replies: Sequence[Reply]
    """From the first on; after the last, those of `loop` in turn."""
    loop: Sequence[Reply] = ()
    max_turns: int = 8
    diverges: int | None = None
    """The first turn that is of no use, where that is another than `turn`."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """See `ScriptedPolicy`."""
        number = sum(message.role == "assistant" for message in messages)
        if number < len(self.replies):
            chosen = self.replies[number]
        else:
            chosen = self.loop[(number - len(self.replies)) % len(self.loop)]
        return chosen if isinstance(chosen, Message) else chosen(messages)


def follow(policy: ScriptedPolicy, task: Task) -> Reply:
    """The next reply of a policy, which does not read malformed ones."""
    return lambda messages: policy.reply(task, leave_out_malformed(messages), Random(0))


def write_nonsense(text: str = "hm") -> Message:
    """A reply that is neither a call nor an answer, as a renderer parses it."""
    error = ToolCallError(kind="no_action", raw=text, message="no call and no answer")
    return Message(role="assistant", content=(), tool_errors=(error,))


@dataclass(slots=True, kw_only=True)
class _Recorder:
    """Implements `ScriptedPolicy`: remembers the replies of another one."""

    policy: ScriptedPolicy
    replies: list[Message] = field(default_factory=list)

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The other's reply."""
        self.replies.append(self.policy.reply(task, messages, rng))
        return self.replies[-1]


async def play(planted: Planted, *, seed: int = 0) -> Trajectory:
    """Play the attempt in its environment, score it, and return it as stored attempts are: Invalid, with the replies so
    far, if the environment failed."""
    recorder = _Recorder(policy=planted)
    about: dict[str, Any] = {"draw": planted.index, "task_id": planted.task.id}
    try:
        played = await play_episode(planted.family, planted.task, recorder, seed=seed, max_turns=planted.max_turns)
    except EnvironmentFault as cause:
        turns = [
            make_turn([1], [2], parent=number - 1 if number else None, message=reply)
            for number, reply in enumerate(recorder.replies)
        ]
        reward = Invalid(reason=str(cause), retryable=True)
        return make_trajectory(*turns, reward=reward, stop=StopReason.ERROR, **about)
    turns = [
        make_turn(
            [1],
            [2],
            parent=number - 1 if number else None,
            message=reply,
            observations=result.observations,
            tool_records=result.tool_records,
        )
        for number, (reply, result) in enumerate(zip(played.replies, played.results, strict=True))
    ]
    stop = StopReason.DONE if played.results[-1].done else StopReason.MAX_TURNS
    return make_trajectory(*turns, reward=played.reward, stop=stop, **about)
