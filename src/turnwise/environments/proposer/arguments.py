"""The keyword arguments of the families in which problems are proposed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, SkipValidation

from turnwise.environments.arguments import FamilyArguments, Seconds, Share, check_weights
from turnwise.environments.proposer.pay import Pay
from turnwise.environments.search_qa.names import MAX_WORDS
from turnwise.environments.search_qa.world import MIN_ENTITIES

KINDS = ("1hop", "2hop", "3hop")
EASY_PRIOR = {"1hop": 0.84, "2hop": 0.11, "3hop": 0.05}


class ProposerArguments(FamilyArguments):
    """What every family with a proposer takes."""

    pay: Pay = "progress"
    """What a proposal earns (see `Pay`)."""
    solvers: int = Field(8, ge=1, le=64)
    """Solvers of one proposal."""


class SearchProposerArguments(ProposerArguments):
    """Questions over the search world, proposed as knowledge projections."""

    num_entities: int = Field(40, ge=MIN_ENTITIES, le=1_000)
    """Entities of a world."""
    tasks_per_world: int = Field(8, ge=1, le=1_000)
    """Consecutive tasks that share a world."""
    num_words: int = Field(32, ge=8, le=MAX_WORDS)
    """Words used of each list that names are made from."""
    top_k: int = Field(3, ge=1, le=100)
    """Passages a search returns at most."""
    max_replies: int = Field(5, ge=2, le=100)
    """Most replies of one solver, its answer included."""
    prior: Annotated[Mapping[str, float] | None, SkipValidation] = None
    """Number of hops ("1hop", "2hop", "3hop") to the weight with which the demonstrator and the policy "prior" propose
    it; None is `EASY_PRIOR`."""
    given_tasks: int = Field(0, ge=0)
    """The first so many training tasks, those of the warm-up, bring a question of one, two or three hops alike, but for
    every fourth: a solver that has hardly seen the wording of two hops does not explore them."""
    naive_wander: Share = 0.15
    """Probability that the demonstrator, as a solver, looks up what it found (see `search_qa`)."""
    reward_timeout_s: Seconds = 10.0
    """Seconds the reward may take."""

    @property
    def weights(self) -> dict[str, float]:
        """The positive weights of `prior`. Raises ConfigError."""
        return check_weights("prior", EASY_PRIOR if self.prior is None else self.prior, KINDS)


class ProgramProposerArguments(ProposerArguments):
    """Programs of a tiny language, proposed as text."""

    skew: float = Field(2.0, ge=0, le=10)
    """The demonstrator and the policy "prior" propose the k-th operation with a weight of k to the power of minus
    this."""
