"""The sizes of the models of a recipe."""

from __future__ import annotations

from turnwise.config.copies import Copies
from turnwise.config.held import Shapes
from turnwise.config.run import RunConfig
from turnwise.models.measured import measure_shapes


def measure_recipe(config: RunConfig, copies: Copies) -> Shapes | None:
    """The sizes of the recipe's models, counted on each; None where those of the policy are unknown."""
    return measure_shapes(config.model, copies, vocab_size=config.tokenizer.vocab_size)
