"""An attack: a policy that plays for the reward instead of the task, whatever the environment.

It sees the conversation and the tools, never the task's payload. What it knows of an environment's form it takes from
an *ignorant* policy, the family's own random one: how a reply looks, and how an episode ends. So one attack works
against answers in tags or boxes, calls of tools, programs and games.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

from turnwise.core.types import Message, ToolSpec

Need = Literal["reply", "tools", "turns", "code", "judge", "oracle", "cheat"]
"""What an environment must have for an attack to apply: replies (all have), tools, several turns, programs that are
run, a judge that is asked, an oracle that the attack plays, or a policy "cheat" of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What an attack is asked to reply to."""

    messages: tuple[Message, ...]
    """The conversation so far."""
    tools: tuple[ToolSpec, ...]
    turn: int
    """Number of replies that the conversation has."""
    rng: Random
    ending: Message
    """The last reply of the ignorant policy to the same task: the form of what ends an episode."""
    act: Callable[[], Message]
    """Returns what the ignorant policy would reply."""
    solve: Callable[[], Message]
    """Returns what the oracle would reply; for attacks that need one."""
    cheat: Callable[[], Message]
    """Returns what the family's own policy "cheat" would reply; for the attack that needs one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One way to play for the reward."""

    name: str
    exploits: str
    """The fault of a reward that it looks for."""
    reply: Callable[[Scene], Message]
    needs: Need = "reply"
    is_slow: bool = False
    """It runs into a limit of time or output, so that few tasks are enough."""
