"""The keyword arguments of the family `expander`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments, Seconds
from turnwise.environments.search_qa.names import MAX_WORDS
from turnwise.environments.search_qa.world import MIN_ENTITIES

Prompt = Literal["explained", "short"]


class ExpanderArguments(FamilyArguments):
    """Formal questions to expand, over generated worlds."""

    num_entities: int = Field(80, ge=MIN_ENTITIES, le=1_000)
    """Entities per world."""
    tasks_per_world: int = Field(8, ge=1, le=1_000)
    """Consecutive tasks that share a world."""
    num_words: int = Field(32, ge=8, le=MAX_WORDS)
    """Number of words used from each list of which names are made."""
    num_distractors: int = Field(0, ge=0, le=10_000)
    """Passages that state nothing of use."""
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
