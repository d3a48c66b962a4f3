"""The sizes of the models of a recipe."""

from __future__ import annotations

from turnwise.config.run import RunConfig
from turnwise.forecast.copies import Copies
from turnwise.forecast.held import Shapes
from turnwise.models.measured import measure_at, measure_policy


def measure_recipe(config: RunConfig, copies: Copies) -> Shapes | None:
    """The sizes of the recipe's models, counted on each; None where those of the policy are unknown."""
    model, vocab_size = config.model, config.tokenizer.vocab_size
    policy = measure_policy(model, vocab_size=vocab_size)
    if policy is None:
        return None
    frozen = {path: measure_at(model, path, vocab_size=vocab_size) for path in copies.frozen}
    return Shapes(
        policy=policy,
        teacher=measure_at(model, copies.teacher, vocab_size=vocab_size) if copies.teacher else None,
        frozen={path: shape for path, shape in frozen.items() if shape is not None},
    )
