"""MiniWoB++ as an environment family: tasks, environments and policies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.miniwob.arguments import MiniwobArguments
from turnwise_worlds.miniwob.drawn import DrawnPages
from turnwise_worlds.miniwob.environment import INVALID_REPLY, MiniwobEnvironment, write_page
from turnwise_worlds.miniwob.goals import find_words
from turnwise_worlds.miniwob.listing import View
from turnwise_worlds.miniwob.pages import Pages, share_pool
from turnwise_worlds.miniwob.policies import DoingPolicy, RandomPolicy
from turnwise_worlds.miniwob.tasks import expand


class Miniwob(GeneratedFamily[MiniwobArguments]):
    """Tasks of MiniWoB++ in Chromium; the browser starts with the first episode."""

    name = "miniwob"
    section = MiniwobArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        self._tasks = expand(self._chosen.tasks)
        self._pool = share_pool(self._chosen.max_pages, reuse=self._chosen.reuse_pages)

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no seed. The page itself is drawn when an episode opens it, so
        that the prompt has the task's name only."""
        path = (self._chosen.seed, "miniwob", split, index)
        task = rng(*path, "task").choice(self._tasks)
        payload = {"task": task, "seed": derive_seed(*path) % 2**53, "kind": task}
        if split == "train" and index < self._chosen.drawn_until:
            payload["drawn"] = True
        return (text_message("user", f" {task}"),), payload

    def build_environment(self, task: Task) -> MiniwobEnvironment:
        """Build a fresh, single-use `MiniwobEnvironment`."""
        return MiniwobEnvironment(self._chosen, task, self._pages_of(task))

    def _pages_of(self, task: Task) -> Pages:
        return DrawnPages() if task.payload.get("drawn") else self._pool

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        chosen = self._chosen
        naive = DoingPolicy(chosen, chosen.naive_skill)
        return {"oracle": DoingPolicy(chosen, 1.0), "random": RandomPolicy(chosen), "naive": naive}

    def texts(self, count: int) -> list[str]:
        """Return the first pages of the training tasks with the calls that they allow. Needs the browser."""
        with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
            return thread.submit(asyncio.run, self._read_texts(count)).result()

    async def _read_texts(self, count: int) -> list[str]:
        texts: list[str] = []
        index = 0
        while len(texts) < count:
            task = self.task("train", index)
            payload = task.payload
            page = await self._pages_of(task).open(payload["task"], payload["seed"])
            await page.close()
            texts += _write_texts(payload["task"], page.view, self._chosen)
            index += 1
        return texts[:count]


def _write_texts(task: str, view: View, chosen: MiniwobArguments) -> list[str]:
    """Return a page, and one call of every tool as small models write it."""
    words = find_words(task, view.goal) or (INVALID_REPLY,)
    texts = [write_page(view, task, chosen), f" click number = {len(view.elements)}"]
    kinds = {each.kind for each in view.elements}
    if kinds & {"field", "area"}:
        texts += [f" type number = 1 text = {word}" for word in words]
    if "list" in kinds:
        texts += [f" select number = 1 option = {word}" for word in words]
    return texts
