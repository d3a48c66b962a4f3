"""Pushing as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.push.arguments import PushArguments
from turnwise_worlds.push.bins import write_word
from turnwise_worlds.push.environment import INVALID_REPLY, PushEnvironment, build_prompt
from turnwise_worlds.push.layouts import draw_table
from turnwise_worlds.push.policies import MovingPolicy, RandomPolicy, draw_chunk
from turnwise_worlds.push.session import Session, bins_of
from turnwise_worlds.push.show import describe
from turnwise_worlds.push.table import Kind, Table, read_payload, write_payload

HELD_OUT = 5
"""One layout in so many is held out."""


class Push(GeneratedFamily[PushArguments]):
    """A hand on a table that reaches a goal, or pushes a block there."""

    name = "push"
    section = PushArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`. Raises ConfigError where MuJoCo is needed and missing."""
        super().__init__(**arguments)
        if self._chosen.body == "mujoco":
            from turnwise_worlds.push.physics import load_mujoco

            load_mujoco()
        # A control changes what an episode shows, not which tasks there are.
        self._uncontrolled = self._chosen.model_copy(update={"goal": "shown", "picture": "shown"})

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no layout."""
        random = rng(self._chosen.seed, "push", split, index)
        kinds = self._chosen.kinds
        kind: Kind = random.choices(list(kinds), list(kinds.values()))[0]  # type: ignore[assignment]
        table = draw_table(kind, self._chosen.side, random)
        while (split == "heldout") != is_held_out(table):
            table = draw_table(kind, self._chosen.side, random)
        payload = write_payload(kind, table)
        return build_prompt(kind, Session.open(payload, self._uncontrolled)), payload

    def build_environment(self, task: Task) -> PushEnvironment:
        """Build a fresh, single-use `PushEnvironment`."""
        return PushEnvironment(self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        chosen = self._chosen
        naive = MovingPolicy(chosen, chosen.naive_skill)
        return {"oracle": MovingPolicy(chosen, 1.0), "random": RandomPolicy(chosen), "naive": naive}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the opening, the table in words, and as many words for bins as a chunk has."""
        chosen = self._chosen
        task = self.task("train", index)
        yield task.prompt[0].text
        yield describe(read_payload(task.payload), chosen.style, hides_goal=index % 2 == 0)
        random = rng(chosen.seed, "texts", index)
        for right, up in draw_chunk(chosen, random):
            yield f" {write_word('x', right)} {write_word('y', up)}"
        numbers = bins_of(chosen).indices
        at = numbers[index % len(numbers)]
        yield f" {write_word('x', at)} {write_word('y', at)}{INVALID_REPLY}"


def is_held_out(table: Table) -> bool:
    """Whether a layout belongs to the held-out tasks, whatever the family's seed."""
    return derive_seed(0, "held out", str(write_payload("push", table))) % HELD_OUT == 0
