"""The parity gate: sampler and trainer score the same tokens before training starts, and then at regular steps.

The run samples these tokens with separate seeds, and never trains on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.core.errors import TrainingError
from turnwise.core.types import Sample
from turnwise.training.parity import BOUNDS, HALF_FORMATS, Evidence, Parity, compute_parity, diagnose, widen


def check_parity(
    samples: Sequence[Sample],
    trainer_logprobs: Sequence[NDArray[Any]],
    *,
    step: int,
    dtype: str,
    collect: Callable[[Sequence[Sample]], Evidence],
    score_exact: Callable[[Sequence[Sample]], Sequence[NDArray[Any]]],
) -> Parity:
    """Compare the sampler's log-probabilities with the trainer's; refuse differences that their dtype does not explain.

    Args:
        samples: short rollouts that never train.
        trainer_logprobs: the trainer's, `[K_i]` over the trained tokens of each sample, computed as in its steps.
        step: the gate comes before step `step + 1`.
        dtype: the model's dtype; a key of `training.parity.BOUNDS`.
        collect: returns everything that a diagnosis reads; called only above the bound of the dtype.
        score_exact: the trainer's scores with its weights in float32; called only where a half-precision model is above
            the bound of its dtype for no cause but rounding, and may be as far apart as `widen` says.

    Raises TrainingError naming the measured difference, the bound and the cause found; or that there is no token to
    compare.
    """
    before = f"parity gate before step {step + 1}"
    recorded = [sample.behavior_logprobs[sample.loss_mask] for sample in samples]
    if not sum(len(logprobs) for logprobs in recorded):
        raise TrainingError(f"{before}: no token could be sampled; see the failures in the run folder")
    trainer, bound = np.concatenate(trainer_logprobs), BOUNDS[dtype]
    parity = compute_parity(trainer, np.concatenate(recorded))
    if not parity.within(bound):
        diagnosis = diagnose(collect(samples), bound)
        if dtype in HALF_FORMATS and diagnosis.cause in ("dtype", "unknown"):
            bound = widen(bound, trainer, np.concatenate(score_exact(samples)))
            if parity.within(bound):
                return parity
        raise TrainingError(
            f"{before}: sampler and trainer score the same {parity.num_tokens} tokens {parity.mean:.3g} nats apart on "
            f"average and {parity.max:.3g} at most; {dtype} explains {bound.mean:g} and {bound.max:g}. Cause: "
            f"{diagnosis.cause}: {diagnosis.text}"
        )
    return parity
