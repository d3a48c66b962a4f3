"""The branches that a recipe's credit method samples, as a worker's plan."""

from __future__ import annotations

from dataclasses import replace

from turnwise.rollout.branching import Branching, EntropyTree, RandomTree, ValueEstimates
from turnwise.rollout.workers import RolloutWorker
from turnwise.runs.build import System


def with_branches(system: System, worker: RolloutWorker) -> RolloutWorker:
    """The worker with the branches that the recipe's credit method asks for."""
    branching, kind = system.config.credit.branching, system.resolved.branches
    plan: Branching | None = None
    if kind == "values":
        plan = ValueEstimates(num_continuations=branching.num_continuations)
    elif kind == "random":
        plan = RandomTree(num_branches=branching.num_branches, num_rounds=branching.num_rounds)
    elif kind == "entropy":
        plan = EntropyTree(
            num_branches=branching.num_branches,
            vocab_size=len(system.tokenizer),
            weight=branching.entropy_weight,
            threshold=branching.entropy_threshold,
            num_tokens=branching.num_entropy_tokens,
        )
    return replace(worker, branching=plan)
