"""The keyword arguments of the family `expander`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.core.protocols import Split
from turnwise.environments.arguments import FamilyArguments, Seconds
from turnwise.environments.search_qa.names import MAX_WORDS
from turnwise.environments.search_qa.world import MIN_ENTITIES
from turnwise_synthesis.shaper.scene import Scene, build_world_scene

Prompt = Literal["explained", "short"]


class SceneArguments(FamilyArguments):
    """Generated worlds in which questions are asked."""

    num_entities: int = Field(80, ge=MIN_ENTITIES, le=1_000)
    """Entities per world."""
    tasks_per_world: int = Field(8, ge=1, le=1_000)
    """Consecutive tasks that share a world."""
    num_words: int = Field(32, ge=8, le=MAX_WORDS)
    """Number of words used from each list of which names are made."""
    num_distractors: int = Field(0, ge=0, le=10_000)
    """Passages that state nothing of use."""

    def build_scene(self, split: Split, seed: int) -> Scene:
        """Build the world of a seed."""
        return build_world_scene(
            split,
            seed,
            num_entities=self.num_entities,
            num_words=self.num_words,
            num_distractors=self.num_distractors,
        )


class ExpanderArguments(SceneArguments):
    """Formal questions to expand, over generated worlds."""

    top_k: int = Field(3, ge=1, le=100)
    """Most passages that a search returns, for the expander and for the solvers that judge its expansion."""
    width: int = Field(1, ge=1, le=3)
    """Most conditions of the question before it is expanded."""
    layers: int = Field(0, ge=0, le=3)
    """How often the question was expanded before the expander gets it."""
    prompt: Prompt = "explained"
    """"explained" says what an expansion is; "short" shows only the question and its answer."""
    reward_timeout_s: Seconds = 30.0
    """Most seconds for judging an expansion."""
