"""Environments that ask for several replies, for tests: one that does at random whatever is allowed."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from pipeline_world import WORDS, Pace, WorldEngine, make_tokenizer

from turnwise.core.episodes import Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.types import (
    Compare,
    Completion,
    IntArray,
    Message,
    Reward,
    RewardPart,
    SamplingParams,
    Scored,
    Session,
    Task,
    text_message,
)
from turnwise.rendering.tags import TagRenderer

ROLES = ("first", "second", "third")
RENDERER = TagRenderer(make_tokenizer())


def make_task(index: int = 0) -> Task:
    """A task by number."""
    return Task(environment="asking", prompt=(text_message("user", f"task {index}"),), payload={"index": index})


class KeepingEngine(WorldEngine):
    """Remembers what it delivered; replies take random times."""

    def __init__(self, delays: int = 0, token_s: float = 0.0005) -> None:
        super().__init__(Pace(seed=delays, token_s=token_s))
        self.delivered: list[Completion] = []

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """As `WorldEngine`."""
        completion = await super().generate(prompt_ids, params, session=session)
        self.delivered.append(completion)
        return completion


@dataclass(eq=False)
class Wanderer:
    """Opens conversations and goes on with them as its seed and the replies say. Implements `AskingEnvironment`."""

    num_roles: int = 2
    max_open: int = 2
    num_replies: int = 8
    breaks_at: int | None = None
    """The reply at which it raises; None for never."""
    compare: Compare = "task"
    delay_s: float = 0.0
    spec: EpisodeSpec = field(init=False)
    told: list[tuple[str, str]] = field(default_factory=list)
    """Every conversation and reply, in order."""

    def __post_init__(self) -> None:
        roles = tuple(
            RoleSpec(name=name, compare=self.compare, max_open=self.max_open) for name in ROLES[: self.num_roles]
        )
        self.spec = EpisodeSpec(roles=roles, max_replies=40, max_depth=3, can_replay=True)

    async def begin(self, task: Task, seed: int) -> Asked:
        """One or two conversations."""
        self._random, self._asked = Random(seed), 0
        self._roles: dict[str, str] = {}
        self._open: set[str] = set()
        return Asked(asks=self._ask())

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """What happens next follows from everything said."""
        await asyncio.sleep(self.delay_s)
        self.told.append((conversation, reply.text))
        self._open.discard(conversation)
        if len(self.told) == self.breaks_at:
            raise OSError("broken")
        self._random = Random(zlib.crc32(f"{self._random.random()} {conversation} {reply.text}".encode()))
        return Asked(asks=self._ask(caller=conversation))

    def _ask(self, caller: str | None = None) -> tuple[Ask, ...]:
        asks: list[Ask] = []
        for _ in range(self._random.choice([1, 1, 2]) if self._open else self._random.choice([1, 2])):
            idle = [name for name in self._roles if name not in self._open]
            if self._asked >= self.num_replies:
                break
            name = self._random.choice([*idle, f"c{len(self._roles)}"])
            role = self._roles.get(name) or self._random.choice(ROLES[: self.num_roles])
            if sum(self._roles[other] == role for other in self._open) >= self.max_open:
                continue
            is_new = name not in self._roles
            self._roles[name] = role
            self._open.add(name)
            self._asked += 1
            word = self._random.choice(WORDS.split())
            is_called = is_new and self._random.random() < 0.2 and caller == "c0"
            asks.append(
                Ask(
                    role=role,
                    conversation=name,
                    messages=(text_message("user" if is_new else "tool", f"{word} for {role}"),),
                    caller=caller if is_called else None,
                    inherits=is_called and self._roles["c0"] == role and "c0" not in self._open,
                )
            )
        return tuple(asks)

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """0 or 1 for each role, by its own words."""
        rewards: dict[str, Reward] = {}
        for role in self.spec.roles:
            names = sorted(name for name in replies if self._roles[name] == role.name)
            text = "|".join(reply.text for name in names for reply in replies[name])
            total = float(zlib.crc32(text.encode()) % 2)
            rewards[role.name] = Scored(total=total, parts=(RewardPart(name="success", value=total),))
        return rewards

    async def close(self) -> None:
        """Nothing to free."""


class Talker:
    """Says a word. Implements `ScriptedPolicy`."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """One of the words."""
        return text_message("assistant", f"<answer> {rng.choice(WORDS.split())} </answer>")


@dataclass(slots=True, kw_only=True)
class WandererFamily:
    """Implements `EnvironmentFamily`."""

    num_roles: int = 2
    compare: Compare = "task"
    pace: Pace = field(default_factory=Pace)
    random: Random = field(default_factory=Random)

    def task(self, split: Split, index: int) -> Task:
        """Task `index`."""
        return make_task(index)

    def build_environment(self, task: Task) -> Wanderer:
        """One episode, in which tools take random times."""
        delay_s = self.random.uniform(0, self.pace.environment_s)
        return Wanderer(num_roles=self.num_roles, compare=self.compare, delay_s=delay_s)

    def policy(self, name: str) -> ScriptedPolicy:
        """The only one."""
        return Talker()

    def texts(self, count: int) -> Sequence[str]:
        """Words."""
        return [WORDS] * count
