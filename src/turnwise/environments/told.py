"""Episodes of scripted policies as documents: `cpt.builder = "turnwise.environments.told:tell_episodes"`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from turnwise.core.documents import Document, DocumentContext
from turnwise.core.seeds import derive_seed
from turnwise.environments.episodes import Episode, Played, play_at_once, run_apart

MAX_AT_ONCE = 64
"""Most episodes in progress."""


def tell_episodes(
    context: DocumentContext,
    *,
    policies: Sequence[str] = ("naive",),
    count: int = 1000,
    first: int = 0,
    max_turns: int = 8,
) -> list[Document]:
    """Return the episode of each policy on each of the training tasks `first .. first + count - 1`, as a rollout would
    write it.

    All of its tokens train. What observations repeat teaches a small model to copy with far fewer episodes than a
    warm-up, whose loss has the replies alone. Raises EnvironmentFault, ToolTimeout or ConfigError if an episode cannot
    be played."""
    family = context.family
    wanted = list(product(range(first, first + count), policies))
    documents = []
    for start in range(0, len(wanted), MAX_AT_ONCE):
        part = wanted[start : start + MAX_AT_ONCE]
        episodes = [
            Episode(
                family,
                family.task("train", index),
                family.policy(name),
                seed=derive_seed(context.seed, "told", index, name),
                max_turns=max_turns,
            )
            for index, name in part
        ]
        for (index, name), played in zip(part, run_apart(play_at_once(episodes)), strict=True):
            documents.append(_tell(f"{name}/train/{index}", played))
    return documents


def _tell(name: str, played: Played) -> Document:
    return Document(id=name, messages=tuple(played.messages), tools=tuple(played.opening.tools))
