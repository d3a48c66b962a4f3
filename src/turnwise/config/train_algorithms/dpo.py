"""Preference pairs of whole attempts."""

from turnwise.config.train_algorithms.algorithm import Algorithm

DPO = Algorithm(name="dpo", needs_reference=True, pairs="attempts", count_passes=lambda loss, rejection: 1)
