"""Episodes of scripted policies on training tasks, and these as documents:
`cpt.builder = "turnwise.environments.told:tell_episodes"`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import product

from turnwise.core.documents import Document, DocumentContext
from turnwise.core.errors import EnvironmentFault, ToolTimeout
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.seeds import derive_seed
from turnwise.environments.episodes import Played, play_episode, run_apart

MAX_AT_ONCE = 8
"""Most episodes in progress: on a busy machine more of them run into the deadlines of their tools."""
TRIES = 4
"""Times that an episode is played until it has no failure; its seed makes all of them the same episode."""


def tell_episodes(
    context: DocumentContext,
    *,
    policies: Sequence[str] = ("naive",),
    count: int = 1000,
    first: int = 0,
    max_turns: int = 8,
) -> list[Document]:
    """Return the episode of each policy on each of the training tasks `first .. first + count - 1`, as a rollout would
    write it. All of its tokens train, those of observations too.

    Raises EnvironmentFault naming an episode that cannot be played."""
    work = play_policies(
        context.family, policies, count=count, first=first, seed=context.seed, name="told", max_turns=max_turns
    )
    documents = []
    for place, played in run_apart(work):
        if isinstance(played, str):
            raise EnvironmentFault(f"{place}: {played}")
        documents.append(Document(id=place, messages=tuple(played.messages), tools=tuple(played.opening.tools)))
    return documents


async def play_policies(
    family: EnvironmentFamily,
    policies: Sequence[str],
    *,
    count: int,
    first: int,
    seed: int,
    name: str,
    max_turns: int,
) -> list[tuple[str, Played | str]]:
    """Return the episode of each policy on each of the training tasks `first .. first + count - 1`, with its place such
    as "naive/train/5"; what failed in one that cannot be played. `name` tells the seeds of its purposes apart."""
    places = asyncio.Semaphore(MAX_AT_ONCE)

    async def play(index: int, policy: str) -> tuple[str, Played | str]:
        place, own, problem = f"{policy}/train/{index}", derive_seed(seed, name, index, policy), ""
        async with places:
            task = family.task("train", index)
            for _ in range(TRIES):
                try:
                    speaker = family.policy(policy)
                    return place, await play_episode(family, task, speaker, seed=own, max_turns=max_turns)
                except (EnvironmentFault, ToolTimeout) as cause:
                    problem = str(cause)
        return place, problem

    wanted = product(range(first, first + count), policies)
    return list(await asyncio.gather(*(play(*each) for each in wanted)))
