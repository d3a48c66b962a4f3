"""An environment of two roles that are asked at once, for tests of what plays episodes from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turnwise.core.episodes import Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.types import Message, Reward, Scored, Task, ToolSpec, text_message

LOOK = ToolSpec(name="look", description="Look up.", parameters={"type": "object", "properties": {}})

SPEC = EpisodeSpec(roles=(RoleSpec(name="left"), RoleSpec(name="right")))


@dataclass(eq=False)
class Panel:
    """Asks "left" and "right" at once. Right may look something up first; a "?" is asked again. The reward of a role is
    the number it says. "hang" hangs and "crash" raises. Implements `AskingEnvironment`."""

    spec: EpisodeSpec = SPEC
    told: list[tuple[str, str]] = field(default_factory=list)
    ends: list[EpisodeEnd] = field(default_factory=list)
    num_closed: int = 0

    async def begin(self, task: Task, seed: int) -> Asked:
        """Both."""
        asks = [
            Ask(role=name, conversation=name, messages=(text_message("user", f"{name}?"),), tools=tools)
            for name, tools in (("left", ()), ("right", (LOOK,)))
        ]
        return Asked(asks=tuple(asks))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Ends the conversation, or asks again."""
        self.told.append((conversation, reply.text))
        await asyncio.sleep(0)
        if reply.text == "hang":
            await asyncio.sleep(60)
        if reply.text == "crash":
            raise ValueError("out of luck")
        if reply.tool_calls or reply.text == "?":
            found = text_message("tool" if reply.tool_calls else "user", f"{conversation}: say 3")
            return Asked(asks=(Ask(role=conversation, conversation=conversation, messages=(found,)),))
        return Asked(asks=(), observations=(text_message("user", f"{conversation} said {reply.text}"),))

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """The last number of each role, 0 without one."""
        self.ends.append(end)
        texts = {name: replies[name][-1].text if replies.get(name) else "" for name in ("left", "right")}
        return {name: Scored(total=float(text) if text.isdigit() else 0.0) for name, text in texts.items()}

    async def close(self) -> None:
        """Counts."""
        self.num_closed += 1


@dataclass(eq=False)
class PanelFamily:
    """Implements `EnvironmentFamily`; keeps what it built."""

    built: list[Panel] = field(default_factory=list)

    def task(self, split: Split, index: int) -> Task:
        """Task `index`."""
        return Task(environment="panel", prompt=(), payload={"index": index})

    def build_environment(self, task: Task) -> Panel:
        """A fresh one."""
        self.built.append(Panel())
        return self.built[-1]

    def policy(self, name: str) -> ScriptedPolicy:
        """None is needed."""
        raise NotImplementedError

    def texts(self, count: int) -> Sequence[str]:
        """None are needed."""
        return []
