"""Policy losses: per-token values to be minimised; weighting and summing is `aggregate`'s."""

from turnwise.algorithms.losses.ppo_clip import compute_ppo_clip_loss

__all__ = ["compute_ppo_clip_loss"]
