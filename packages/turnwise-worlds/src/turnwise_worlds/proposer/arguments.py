"""The keyword arguments of families with a proposer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, SkipValidation

from turnwise.environments.arguments import FamilyArguments, Seconds, Share, check_weights
from turnwise.environments.search_qa.names import MAX_WORDS
from turnwise.environments.search_qa.world import MIN_ENTITIES
from turnwise_worlds.proposer.pay import Pay

KINDS = ("1hop", "2hop", "3hop")
EASY_PRIOR = {"1hop": 0.84, "2hop": 0.11, "3hop": 0.05}


class ProposerArguments(FamilyArguments):
    """Arguments of every family with a proposer."""

    pay: Pay = "progress"
    """What a proposal earns (see `Pay`)."""
    solvers: int = Field(8, ge=1, le=64)
    """Solvers per proposal."""


class SearchProposerArguments(ProposerArguments):
    """Questions over the search world, proposed as knowledge projections."""

    num_entities: int = Field(40, ge=MIN_ENTITIES, le=1_000)
    """Entities per world."""
    tasks_per_world: int = Field(8, ge=1, le=1_000)
    """Consecutive tasks that share a world."""
    num_words: int = Field(32, ge=8, le=MAX_WORDS)
    """Number of words used from each list of which names are made."""
    top_k: int = Field(3, ge=1, le=100)
    """Most passages that a search returns."""
    max_replies: int = Field(5, ge=2, le=100)
    """Most replies of one solver, including its answer."""
    prior: Annotated[Mapping[str, float] | None, SkipValidation] = None
    """Weight with which the demonstrator and the policy "prior" propose each number of hops ("1hop", "2hop", "3hop");
    None is `EASY_PRIOR`."""
    given_tasks: int = Field(0, ge=0)
    """Number of first training tasks, those of the warm-up, that bring a question of one, two or three hops with equal
    probability, except every fourth task: a solver that has hardly seen two-hop wordings does not explore them."""
    naive_wander: Share = 0.15
    """Probability that the demonstrator, as a solver, looks up its result (see `search_qa`)."""
    reward_timeout_s: Seconds = 10.0
    """Most seconds for the reward."""

    @property
    def weights(self) -> dict[str, float]:
        """The positive weights of `prior`. Raises ConfigError."""
        return check_weights("prior", EASY_PRIOR if self.prior is None else self.prior, KINDS)


class ProgramProposerArguments(ProposerArguments):
    """Programs in a tiny language, proposed as text."""

    skew: float = Field(2.0, ge=0, le=10)
    """Exponent s: the demonstrator and the policy "prior" propose the k-th operation with weight k^-s."""
