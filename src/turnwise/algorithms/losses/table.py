"""The table of policy losses, and the function that builds a checked loss from a name and options.

Each loss's file defines its row; this table lists the rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from turnwise.algorithms.losses.cispo import CISPO
from turnwise.algorithms.losses.covariance import CLIP_COV, KL_COV
from turnwise.algorithms.losses.decoupled import DECOUPLED_PPO
from turnwise.algorithms.losses.dppo import DPPO_KL, DPPO_TV
from turnwise.algorithms.losses.dual_clip import DUAL_CLIP
from turnwise.algorithms.losses.gmpo import GMPO
from turnwise.algorithms.losses.gspo import GSPO, GSPO_TOKEN, LUSPO
from turnwise.algorithms.losses.inputs import LossFunction, LossInputs
from turnwise.algorithms.losses.method import LossMethod, OptionValue
from turnwise.algorithms.losses.ppo_clip import CLIP_HIGHER, DAPO, DR_GRPO, GRPO, PPO
from turnwise.algorithms.losses.reinforce import GPG, REINFORCE
from turnwise.algorithms.losses.sapo import SAPO
from turnwise.algorithms.losses.vespo import VESPO
from turnwise.algorithms.names import collect_rows, describe_unknown_option, find_row

LOSSES: dict[str, LossMethod] = collect_rows(
    (
        PPO,
        CLIP_HIGHER,
        DUAL_CLIP,
        GRPO,
        DR_GRPO,
        DAPO,
        GSPO,
        GSPO_TOKEN,
        LUSPO,
        CISPO,
        SAPO,
        GMPO,
        DPPO_TV,
        DPPO_KL,
        DECOUPLED_PPO,
        CLIP_COV,
        KL_COV,
        VESPO,
        GPG,
        REINFORCE,
    )
)
"""Every policy loss by name."""


def build_loss(
    name: str,
    options: Mapping[str, OptionValue] | None = None,
    *,
    corrected: bool = False,
    old_is_behavior: bool | None = None,
) -> LossFunction:
    """Build the loss with that name, with every option checked before training starts.

    Args:
        name: a key of `LOSSES` or an alias.
        options: values that override its defaults; None: no overrides.
        corrected: whether losses will be multiplied by old / behavior weights (`corrections.compute_correction`).
        old_is_behavior: whether `old_logprobs` are the sampler's instead of recomputed ones; None when unknown.

    Raises:
        ValueError: an unknown name or option (with the nearest), a value of the wrong type or out of range, or a
            meaningless combination, with the reason.
    """
    method = find_row("loss", name, LOSSES)
    return build_loss_row(method, options, corrected=corrected, old_is_behavior=old_is_behavior)


def build_loss_row(
    method: LossMethod,
    options: Mapping[str, OptionValue] | None = None,
    *,
    corrected: bool = False,
    old_is_behavior: bool | None = None,
) -> LossFunction:
    """As `build_loss`, for a row that need not be in the table."""
    given = dict(options or {})
    check_loss_row(method, given, corrected=corrected, old_is_behavior=old_is_behavior)
    loss = method.build(**given)
    token = torch.zeros(1)
    # Every loss checks its own ranges when it is called; one token makes it do so now.
    loss(
        LossInputs(
            policy_logprobs=token, old_logprobs=token, behavior_logprobs=token, advantages=token, sequence=token.long()
        )
    )
    return loss


def check_loss_row(
    method: LossMethod, options: Mapping[str, OptionValue], *, corrected: bool, old_is_behavior: bool | None
) -> None:
    """Raise ValueError for an option that the row does not have, a value of another type, or a meaningless combination;
    see `build_loss`."""
    for key, value in options.items():
        if key not in method.defaults:
            raise ValueError(describe_unknown_option(f"loss {method.name!r}", key, method.defaults))
        _check_type(method.name, key, value, method.defaults[key])
    _check_combination(method, corrected, old_is_behavior)


def _check_type(name: str, key: str, value: object, default: OptionValue) -> None:
    kinds: tuple[type, ...] = (
        (str,) if isinstance(default, str) else (int,) if isinstance(default, int) else (int, float)
    )
    if isinstance(value, bool) or not isinstance(value, kinds) or value != value:
        wanted = "a text" if kinds == (str,) else "a whole number" if kinds == (int,) else "a number"
        raise ValueError(f"loss {name!r}: option {key!r} is {value!r}; it must be {wanted} (default {default!r})")


def _check_combination(method: LossMethod, corrected: bool, old_is_behavior: bool | None) -> None:
    if corrected and method.anchor in ("behavior", "both"):
        raise ValueError(
            f"loss {method.name!r} already weights by the behavior policy; an importance correction on top would count "
            "the sampler-trainer mismatch twice. Switch the correction off, or choose a loss anchored at the old policy"
        )
    if corrected and old_is_behavior:
        raise ValueError(
            f"loss {method.name!r} with an importance correction: the old log-probabilities are the sampler's own, so "
            "old / behavior is 1 everywhere, and a correction computed elsewhere would count the mismatch twice (the "
            "ratio already contains it). Recompute old log-probabilities with the trainer, or switch the correction off"
        )
    if method.anchor == "both" and old_is_behavior:
        raise ValueError(
            f"loss {method.name!r} needs old log-probabilities that differ from the behavior policy's; if they are "
            "equal, the loss is plain 'ppo'. Recompute old log-probabilities with the trainer, or use 'ppo'"
        )
