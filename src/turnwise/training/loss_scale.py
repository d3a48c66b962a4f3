"""Loss scaling for float16, whose smallest number is 6e-8: smaller gradients would be 0.

The loss is multiplied before the backward pass and the float32 gradients are divided before they are clipped, both by
the same power of two, which changes no other bit. If gradients overflow, that update changes nothing and the scale is
halved; after `GROWTH_UPDATES` updates without overflow it is doubled. bfloat16 has the range of float32 and needs none.

The scale is part of the optimizer's state, beside the moments, so that copies and checkpoints hold it.
"""

from __future__ import annotations

import torch

SCALE = "loss_scale"
"""Key of the scale in an optimizer's state."""
START = 2.0**16
LARGEST = 2.0**24
GROWTH_UPDATES = 200


def add_loss_scale(optimizer: torch.optim.Optimizer) -> None:
    """Add a scale of `START` to the optimizer."""
    optimizer.state[SCALE] = {  # type: ignore[index]
        "scale": torch.tensor(START),
        "good_updates": torch.tensor(0.0),
    }


def find_scale(optimizer: torch.optim.Optimizer) -> float | None:
    """Return the factor of the loss for this optimizer's parameters; None if it is not scaled."""
    held = optimizer.state.get(SCALE)  # type: ignore[call-overload]
    return None if held is None else float(held["scale"])


def scale_loss(loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """Return the loss whose gradients are taken: `loss` itself if there is no scale."""
    scale = find_scale(optimizer)
    return loss if scale is None else loss * scale


def note_update(optimizer: torch.optim.Optimizer, *, overflowed: bool) -> None:
    """Halve the scale after an overflow, double it after enough updates without one."""
    held = optimizer.state[SCALE]  # type: ignore[index]
    scale, good = float(held["scale"]), float(held["good_updates"])
    good = 0.0 if overflowed else good + 1
    scale = scale / 2 if overflowed else scale
    if good == GROWTH_UPDATES:
        scale, good = min(LARGEST, 2 * scale), 0.0
    held["scale"], held["good_updates"] = torch.tensor(scale), torch.tensor(good)
