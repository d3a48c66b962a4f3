"""Preference pairs of the steps at which two attempts diverge."""

from turnwise.config.train_algorithms.algorithm import Algorithm

STEP_DPO = Algorithm(name="step_dpo", needs_reference=True, pairs="steps", count_passes=lambda loss, rejection: 1)
