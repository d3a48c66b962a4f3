"""The keyword arguments of the family `report`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments, Share
from turnwise.environments.search_qa.corpus import NUM_PHRASINGS
from turnwise.environments.search_qa.names import MAX_WORDS
from turnwise.environments.search_qa.world import MIN_ENTITIES
from turnwise_rewards.grounding.reward import GroundingWeights

SearchSwitch = Literal["on", "off", "shuffled"]
Rule = Literal["later", "trusted"]
Measure = Literal["all", "citations", "answers", "contradictions"]


class PagesArguments(FamilyArguments):
    """The pages of a world, and what a search shows of them."""

    num_entities: int = Field(40, ge=MIN_ENTITIES, le=1_000)
    """Entities per world."""
    tasks_per_world: int = Field(1, ge=1, le=1_000)
    """Consecutive tasks that share a world."""
    num_words: int = Field(MAX_WORDS, ge=8, le=MAX_WORDS)
    """Number of words used from each list of which names are made."""
    num_phrasings: int = Field(1, ge=1, le=NUM_PHRASINGS)
    """How many phrasings of a fact are used."""
    contradictions: Share = 0.2
    """Probability with which a second page says something else about a fact: one of the two is right, by `rule`."""
    same_year: Share = 0.25
    """Share of the contradictions that the rule's first criterion does not settle: two pages of the same year or, under
    the rule "trusted", of the same kind of source."""
    num_years: int = Field(30, ge=2, le=100)
    """Number of different years."""
    top_k: int = Field(3, ge=1, le=100)
    """Most pages that a search returns."""
    show: Literal["text", "title"] = "text"
    """What a search shows of a page besides its id: its text, or only its title; the tool `open` then shows the
    text."""
    search: SearchSwitch = "on"
    """"on", or a control that must fail: "off" finds nothing, "shuffled" shows under every id a page about something
    else."""


class ReportArguments(PagesArguments):
    """Reports on a few facts, each with the page that says so."""

    rule: Rule = "later"
    """Which of two pages that disagree is right: "later", or "trusted", the one of the more reliable source; the other
    criterion decides where the first does not."""
    min_claims: int = Field(3, ge=1, le=20)
    """Fewest facts asked for."""
    max_claims: int = Field(5, ge=1, le=20)
    """Most facts asked for."""
    prompt: Literal["short", "full"] = "full"
    """"full" explains tools, rule and form of the report; "short" only names the facts."""
    weights: GroundingWeights = GroundingWeights()
    """Weights of the reward."""
    measure: Measure = "all"
    """What `success` says: "all" claims answered and supported and nothing else, "citations" precision of citations at
    least a half, "answers" all right whatever they cite, "contradictions" all facts with two pages supported."""
    naive_care: Share = 0.2
    """Probability with which the naive policy cites the page that it has read a claim from, not the last one shown."""

    @model_validator(mode="after")
    def _check_claims(self) -> Self:
        if self.min_claims > self.max_claims:
            raise ConfigError(
                f"min_claims={self.min_claims} is above max_claims={self.max_claims}; lower it or raise the other"
            )
        return self
