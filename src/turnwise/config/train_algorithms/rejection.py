"""Fine-tuning on the best attempts."""

from turnwise.config.train_algorithms.algorithm import Algorithm

REJECTION = Algorithm(
    name="rejection",
    count_passes=lambda loss, rejection: rejection.passes,
    passes_option="rejection.passes",
)
