"""Float32 masters of weights that a model holds in a short format: in one process, the optimizer steps on these.

A step of bfloat16 changes a weight by at least 1/256 of it or not at all, so at the learning rates of pretrained models
nearly every update would be lost. Each trained parameter in a short format therefore has a float32 master, like the
rows of ranks (`training/ranks/sharding.py`), and with the same arithmetic: gradients of a backward pass are in the
short format and are summed in float32 over micro-batches; norm, clipping and the optimizer's step use the masters; then
the parameter is set to its rounded master, in place, and engines sample from that.

Masters belong to the parameters, not to an optimizer: the warm-up's optimizer and the later one step on the same
masters. Parameters in float32 and float64 (an adapter's always are) are their own masters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch

SHORT = (torch.bfloat16, torch.float16)
"""Formats in which small steps would be lost."""
_ATTRIBUTE = "float32_master"


@dataclass(slots=True, eq=False)
class _Master:
    tensor: torch.nn.Parameter
    version: int
    """torch's count of writes to the parameter when parameter and master last agreed."""


def find_master(parameter: torch.Tensor) -> torch.nn.Parameter:
    """Return the tensor on which an optimizer steps for this parameter: its master, or the parameter itself if it has
    none."""
    held: _Master | None = getattr(parameter, _ATTRIBUTE, None)
    return cast(torch.nn.Parameter, parameter) if held is None else held.tensor


def keep_masters(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Create a master for every trained parameter in a short format that has none yet.

    From then on a backward pass adds its gradient to the master's. Copies of a module have their own masters.
    """
    for parameter in parameters:
        if parameter.requires_grad and parameter.dtype in SHORT and find_master(parameter) is parameter:
            master = torch.nn.Parameter(parameter.detach().float())
            setattr(parameter, _ATTRIBUTE, _Master(master, parameter._version))
            parameter.register_post_accumulate_grad_hook(_hand_over)


def follow_masters(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.nn.Parameter]) -> None:
    """Make every step of `optimizer`, which steps on the masters of `parameters`, change these parameters too.

    Weights that were written in place since the last step replace the master that differs from them.
    """
    followed = [parameter for parameter in parameters if find_master(parameter) is not parameter]
    if followed:
        optimizer.register_step_pre_hook(lambda *_: _take_over(followed))
        optimizer.register_step_post_hook(lambda *_: round_masters(followed))


@torch.no_grad()
def round_masters(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Write the rounded masters into those parameters that have one."""
    for parameter in parameters:
        held: Any = getattr(parameter, _ATTRIBUTE, None)
        if held is not None:
            parameter.copy_(held.tensor)
            held.version = parameter._version


def describe_format(module: torch.nn.Module) -> str:
    """Describe the format in which an optimizer steps, for people: "float32", or "float32 (masters of bfloat16)"."""
    first = next(parameter for parameter in module.parameters() if parameter.requires_grad)
    stepped = str(find_master(first).dtype).removeprefix("torch.")
    return (
        stepped if find_master(first) is first else f"{stepped} (masters of {str(first.dtype).removeprefix('torch.')})"
    )


def _hand_over(parameter: torch.Tensor) -> None:
    """Add the gradient of one backward pass to the master's, in float32."""
    master, gradient = find_master(parameter), parameter.grad
    if gradient is None:
        return
    parameter.grad = None
    if master.grad is None:
        master.grad = gradient.float()
    else:
        master.grad += gradient


@torch.no_grad()
def _take_over(parameters: Iterable[torch.nn.Parameter]) -> None:
    for parameter in parameters:
        held: Any = getattr(parameter, _ATTRIBUTE)
        if held.version != parameter._version:
            written = held.tensor.to(parameter.dtype) != parameter
            held.tensor[written] = parameter[written].float()
