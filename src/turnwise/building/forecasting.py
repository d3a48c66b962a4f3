"""What predictions of memory and time read of a recipe."""

from __future__ import annotations

from turnwise.building.resolved import Resolved
from turnwise.forecast.settings import ForecastSettings


def read_forecast_settings(resolved: Resolved) -> ForecastSettings:
    """What the recipe's memory and time depend on."""
    config = resolved.config
    return ForecastSettings(
        model=config.model,
        vocab_size=config.tokenizer.vocab_size,
        copies=resolved.copies,
        engine=config.engine,
        engine_kind=resolved.engine,
        rollout=config.rollout,
        branches_per_attempt=_count_branches(resolved),
        train=config.train,
        loss=config.loss,
        has_credit=resolved.algorithm.has_credit,
        document_tokens=config.cpt.steps * config.cpt.batch_tokens,
        longest_document=config.cpt.max_tokens if config.cpt.steps else 0,
        num_demonstrations=config.sft.num_demonstrations if config.sft.steps and not config.sft.path else 0,
    )


def _count_branches(resolved: Resolved) -> int:
    """Most branches of one attempt: "values" continues from every turn, "random" adds leaves in rounds, "entropy" has
    one budget."""
    branching = resolved.config.credit.branching
    return {
        "none": 0,
        "values": branching.num_continuations * resolved.config.rollout.max_turns,
        "random": branching.num_branches * branching.num_rounds,
        "entropy": branching.num_branches,
    }[resolved.branches]
