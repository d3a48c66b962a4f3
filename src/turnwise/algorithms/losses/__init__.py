"""Policy losses: per-token values to be minimised; `aggregate` weights and sums them."""

from turnwise.algorithms.losses.inputs import LossFunction, LossInputs, LossOutput
from turnwise.algorithms.losses.method import LossMethod
from turnwise.algorithms.losses.ppo_clip import compute_ppo_clip_loss
from turnwise.algorithms.losses.table import LOSSES, build_loss

__all__ = ["LOSSES", "LossFunction", "LossInputs", "LossMethod", "LossOutput", "build_loss", "compute_ppo_clip_loss"]
