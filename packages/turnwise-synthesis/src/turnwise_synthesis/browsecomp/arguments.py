"""The keyword arguments of the family `browsecomp`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, SkipValidation, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import Seconds, Share, check_weights
from turnwise.environments.search_qa.environment import SearchSwitch
from turnwise.environments.search_qa.world import MIN_ENTITIES
from turnwise_synthesis.browsecomp.invert import Plan
from turnwise_synthesis.shaper.arguments import SceneArguments
from turnwise_synthesis.shaper.obfuscation import OPERATORS

KINDS: Mapping[str, int] = {"near": 1, "far": 2}
"""Kind of question -> facts between the answer and the nearest entity that is named (`Plan.distance`)."""
TYPES = ("person", "place", "organisation", "work")
Prompt = Literal["short", "explained", "confidence"]
Wording = Literal["plain", "compact"]


class BrowseCompArguments(SceneArguments):
    """Inverted questions over generated worlds, with a budget of searches."""

    num_entities: int = Field(60, ge=MIN_ENTITIES, le=1_000)
    """Entities per world."""
    top_k: int = Field(3, ge=1, le=100)
    """Most passages that a search returns."""
    kinds: Annotated[Mapping[str, float] | None, SkipValidation] = None
    """Weight of each kind: "near" names neighbours of the answer, "far" only their neighbours; None is only "far"."""
    answers: Sequence[str] = TYPES
    """Types of entities that are asked for: "person", "place", "organisation", "work"."""
    min_candidates: int = Field(2, ge=2, le=100)
    """Fewest entities that each condition alone leaves."""
    max_conditions: int = Field(3, ge=2, le=6)
    """Most conditions of a question."""
    obfuscations: Sequence[str] = ("first", "initial", "decade")
    """Operators that make conditions vaguer: "type", "initial", "first", "decade", "hypernym"."""
    max_effort: int = Field(12, ge=1, le=100)
    """Most searches that the searching solver may need for a question; others are not asked. It does not depend on
    `max_searches`, so that every budget is measured on the same questions."""
    max_searches: int = Field(32, ge=0, le=1_000)
    """Searches that an episode may make; after these the tool answers that the budget is used up."""
    wording: Wording = "plain"
    """"plain": a sentence; "compact": relations and names only, for small models."""
    prompt: Prompt = "short"
    """"short" is only the question; "explained" says how to search and answer; "confidence" also asks for a confidence
    in percent, as BrowseComp does."""
    search: SearchSwitch = "on"
    """"on", or a control that must fail: "off" finds nothing, "shuffled" returns random passages."""
    naive_wander: Share = 0.3
    """Probability that the naive policy looks up its result instead of answering."""
    reward_timeout_s: Seconds = 10.0
    """Most seconds for the reward."""

    @property
    def weights(self) -> dict[str, float]:
        """The positive weights of `kinds`. Raises ConfigError."""
        return check_weights("kinds", {"far": 1.0} if self.kinds is None else self.kinds, tuple(KINDS))

    def plan(self, kind: str) -> Plan:
        """Return what questions of a kind must be."""
        return Plan(
            min_candidates=self.min_candidates,
            max_conditions=self.max_conditions,
            obfuscations=tuple(self.obfuscations),
            distance=KINDS[kind],
        )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name, given, known in (("answers", self.answers, TYPES), ("obfuscations", self.obfuscations, OPERATORS)):
            unknown = sorted(set(given) - set(known))
            if unknown:
                raise ConfigError(f"{name}={list(given)} has {unknown[0]!r}; use {', '.join(known)}")
        if not self.answers:
            raise ConfigError("answers=[] leaves nothing to ask for; name at least one type")
        return self
