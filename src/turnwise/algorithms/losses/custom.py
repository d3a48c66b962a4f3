"""Checks a user's policy loss: on three tokens before anything trains, and at every micro-batch.

Problems that the trial finds are reported before a run begins; problems that appear only with real data, in the same
words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from turnwise.algorithms.losses.inputs import LossFunction, LossInputs, LossOutput

REMEDY = "take LossInputs and return LossOutput(losses=..., clipped=...), one loss per token as `[K]` before any mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLoss:
    """A loss whose results are checked. Calling it raises ValueError naming what is wrong, and the remedy."""

    function: Callable[[LossInputs], object]
    metrics: tuple[str, ...] = ()
    """Names of its additional metrics, as seen in the trial: every rank sums the same ones."""

    def __call__(self, inputs: LossInputs) -> LossOutput:
        """Return the checked output; with no tokens, which a rank may have, the function is not called."""
        if not len(inputs.policy_logprobs):
            empty = inputs.policy_logprobs * 0.0
            none = torch.zeros_like(inputs.advantages)
            return LossOutput(losses=empty, clipped=none.bool(), metrics=dict.fromkeys(self.metrics, none))
        output = read_output(self.function(inputs), inputs)
        if set(output.metrics) != set(self.metrics):
            here, before = sorted(output.metrics) or "nothing", sorted(self.metrics) or "nothing"
            raise ValueError(
                f"its metrics are {here} here but were {before} in the trial; return the same metrics for every "
                "micro-batch"
            )
        return output


def try_loss(function: LossFunction) -> CheckedLoss:
    """Return the loss after a trial on three tokens of two samples. Raises ValueError naming what is wrong, and
    whatever the function raises."""
    policy = torch.tensor([-0.5, -1.0, -1.5], requires_grad=True)
    behavior = torch.tensor([-0.6, -1.0, -1.2])
    inputs = LossInputs(
        policy_logprobs=policy,
        old_logprobs=behavior + 0.05,
        behavior_logprobs=behavior,
        advantages=torch.tensor([1.0, -1.0, 0.5]),
        sequence=torch.tensor([0, 0, 1]),
        entropy=torch.tensor([0.7, 0.9, 0.4]),
    )
    output = read_output(function(inputs), inputs)
    if not bool(torch.isfinite(output.losses).all()):
        raise ValueError(f"its losses for three tokens are {output.losses.tolist()}; each must be finite")
    if not output.losses.requires_grad:
        raise ValueError("its losses have no gradient; compute them from inputs.policy_logprobs, without detach()")
    (gradient,) = torch.autograd.grad(output.losses.sum(), policy, allow_unused=True)
    if gradient is None or not bool(torch.isfinite(gradient).all()):
        seen = "none" if gradient is None else gradient.tolist()
        raise ValueError(f"the gradient of its losses with respect to policy_logprobs is {seen}; it must be finite")
    return CheckedLoss(function=function, metrics=tuple(sorted(output.metrics)))


def read_output(output: object, inputs: LossInputs) -> LossOutput:
    """Read a loss's result, with metrics per token. Raises ValueError naming what does not fit."""
    if not isinstance(output, LossOutput):
        raise ValueError(f"it returned a {type(output).__name__}; {REMEDY}")
    shape = inputs.policy_logprobs.shape
    for name in ("losses", "clipped"):
        _check_tensor(name, getattr(output, name), shape)
    if not output.losses.is_floating_point():
        raise ValueError(f"its losses have dtype {output.losses.dtype}; return floating-point numbers")
    if output.clipped.dtype != torch.bool:
        raise ValueError(
            f"its clipped has dtype {output.clipped.dtype}; return bool, True where a clip changed the token's gradient"
        )
    if not isinstance(output.metrics, Mapping):
        raise ValueError(f"its metrics are of type {type(output.metrics).__name__}; return a dict from name to tensor")
    return replace(output, metrics={str(name): _to_tokens(name, each, inputs) for name, each in output.metrics.items()})


def _check_tensor(name: str, value: object, shape: torch.Size) -> None:
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"its {name} is a {type(value).__name__}; {REMEDY}")
    if value.shape != shape:
        raise ValueError(f"its {name} has shape {tuple(value.shape)} for {shape[0]} tokens; {REMEDY}")


def _to_tokens(name: object, value: object, inputs: LossInputs) -> torch.Tensor:
    """Convert a metric to one number per token; a single number applies to every token."""
    policy = inputs.policy_logprobs
    if isinstance(value, bool | int | float):
        value = torch.tensor(float(value))
    if not isinstance(value, torch.Tensor) or value.shape not in (policy.shape, torch.Size(())):
        seen = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise ValueError(f"its metric {name!r} is {seen}; return one number, or one per token as `[K]`")
    return value.detach().to(policy.device, torch.float32).expand(policy.shape)
