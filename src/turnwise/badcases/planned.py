"""Where an attempt first leaves what would have succeeded, by how far the oracle is from success after each reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from turnwise.badcases.divergence import Divergence, Unknown
from turnwise.core.errors import ConfigError, TurnwiseError
from turnwise.core.protocols import EnvironmentFamily, ScriptedPolicy
from turnwise.core.types import FinishReason, Invalid, Message, Task, Trajectory
from turnwise.environments.episodes import play_episode
from turnwise.evaluation.summary import is_right


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guided:
    """Implements `ScriptedPolicy`: gives the stored replies first, then those of the oracle.

    The oracle does not read malformed replies: no policy written by hand expects them.
    """

    stored: Sequence[Message]
    oracle: ScriptedPolicy

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next reply."""
        number = sum(message.role == "assistant" for message in messages)
        if number < len(self.stored):
            return self.stored[number]
        return self.oracle.reply(task, leave_out_malformed(messages), rng)


def leave_out_malformed(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation without the replies that are no call, and without what they were answered."""
    read: list[Message] = []
    is_read = True
    for message in messages:
        if message.role == "assistant":
            is_read = bool(message.tool_calls) or not message.tool_errors
        if is_read:
            read.append(message)
    return read


def find_oracle(family: EnvironmentFamily) -> ScriptedPolicy | None:
    """Return the family's oracle; None if it has none."""
    try:
        return family.policy("oracle")
    except ConfigError:
        return None


async def find_by_oracle(
    family: EnvironmentFamily, oracle: ScriptedPolicy, task: Task, trajectory: Trajectory, *, seed: int, max_turns: int
) -> Divergence | Unknown:
    """Compare, reply by reply, how many more replies the oracle needs to succeed.

    The environment is opened again with `seed`, the stored replies are given, and the oracle goes on from there, within
    `max_turns` in all. A reply that brings success nearer leaves the oracle fewer replies than before; the first that
    does not is the divergence. `lost` is the first after which the oracle no longer succeeds. Nothing is compared where
    the oracle does not succeed from the start, where the stored answers of tools do not come back, or where several
    conversations were held.
    """
    if len(trajectory.conversations) > 1 or trajectory.endings:
        return Unknown(reason="the attempt has several conversations, which the oracle cannot continue")
    # A reply that was cut off never reached the environment.
    received = [turn for turn in trajectory.turns if turn.completion.finish_reason is not FinishReason.LENGTH]
    replies = [turn.message for turn in received]
    left: list[int | None] = []
    for count in range(len(replies)):
        guided = _Guided(stored=replies[:count], oracle=oracle)
        try:
            played = await play_episode(family, task, guided, seed=seed, max_turns=max_turns)
        except TurnwiseError as cause:
            if not count:
                return Unknown(reason=f"the task cannot be played again ({cause})")
            left.append(None)
            continue
        shown = [result.observations for result in played.results[:count]]
        if shown != [turn.observations for turn in received[:count]]:
            return Unknown(reason=f"the environment answers otherwise than stored, first within turns 0 to {count - 1}")
        if isinstance(played.reward, Invalid) or not is_right(played.reward):
            if not count:
                return Unknown(reason="the oracle does not solve this task")
            left.append(None)
        else:
            left.append(len(played.replies) - count)
    if not left:
        return Unknown(reason="no reply reached the environment")
    return compare(left)


def compare(left: Sequence[int | None]) -> Divergence:
    """Return the divergence of a failed attempt, from the replies that the oracle still needs before each of its own
    (None: it no longer succeeds); the first is not None.

    With 4, 3, 3, None: reply 1 brings success no nearer (3, then 3), and after reply 2 it is lost. The last reply ends
    a failed attempt, so at the latest success is lost with it.
    """
    after = [*left[1:], None]
    turn = next(
        at for at, (old, new) in enumerate(zip(left, after, strict=True)) if old is None or new is None or new >= old
    )
    lost = next(at for at, new in enumerate(after) if new is None)
    return Divergence(
        method="oracle", turn=turn, lost=lost, values=tuple(None if n is None else float(n) for n in left)
    )
