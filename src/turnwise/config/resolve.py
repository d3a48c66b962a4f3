"""What sections must agree on. The only place that looks at two sections at once."""

from __future__ import annotations

from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError


def check_sections(config: RunConfig) -> RunConfig:
    """The config itself when its sections fit together. Raises ConfigError naming both keys, both values and the remedy."""
    rollout, engine, train = config.rollout, config.engine, config.train
    problems = [
        (
            rollout.max_turn_tokens >= rollout.max_tokens,
            f"rollout.max_turn_tokens={rollout.max_turn_tokens} leaves no room for a prompt in "
            f"rollout.max_tokens={rollout.max_tokens}; lower the first",
        ),
        (
            rollout.max_tokens > engine.max_context,
            f"rollout.max_tokens={rollout.max_tokens} does not fit in engine.max_context={engine.max_context}; raise the second",
        ),
        (
            train.steps > 0 and rollout.group_size < 2,
            f"credit.estimator={config.credit.estimator!r} compares the members of a group, "
            f"rollout.group_size={rollout.group_size} has nothing to compare; use at least 2",
        ),
        (
            rollout.top_p < 1,
            f"rollout.top_p={rollout.top_p} samples from a truncated distribution that the trainer does not score; "
            f"use 1.0 and rollout.temperature",
        ),
        (
            not config.model.path and not config.model.config,
            "model.path is empty and so is model.config: name a Hugging Face directory, or the sizes of a model to start from scratch",
        ),
    ]
    for broken, message in problems:
        if broken:
            raise ConfigError(message)
    return config
