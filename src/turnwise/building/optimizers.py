"""The optimizer and the schedule of a recipe, by name or import path; both are tried on a few numbers before anything
trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from turnwise.config.learning import ADAMW, DECAYS
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, TrainingError, boundary
from turnwise.core.offers import import_function
from turnwise.training.optimizer import BuildOptimizer, Decay, DecayFunction, compute_lr


def find_optimizer(config: RunConfig) -> BuildOptimizer | None:
    """What builds the recipe's optimizer; None is AdamW without further options.

    Raises ConfigError when the import path, an option or what it builds is wrong.
    """
    train = config.train
    options: dict[str, Any] = dict(train.optimizer_options)
    if train.optimizer != ADAMW:
        build: Callable[..., Any] = import_function("train.optimizer", train.optimizer)
    elif options:
        build = torch.optim.AdamW
        options |= {"betas": (train.beta1, train.beta2), "fused": True}
    else:
        return None

    def build_optimizer(groups: list[dict[str, Any]], lr: float) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = build(groups, lr=lr, **options)
        return optimizer

    return build_optimizer


def find_decay(config: RunConfig) -> Decay:
    """The recipe's decay. Raises ConfigError when an import path leads to no function."""
    decay = config.train.decay
    if decay in DECAYS:
        return cast(Decay, decay)
    return cast(DecayFunction, import_function("train.decay", decay))


def check_optimizer(config: RunConfig) -> None:
    """Try the recipe's optimizer and decay.

    Raises ConfigError where they cannot be called, and where the optimizer would not go on from a checkpoint bit for
    bit: its state must be tensors by parameter, and all that it goes on from.
    """
    train = config.train
    build = find_optimizer(config)
    if build is not None:
        what = f"train.optimizer={train.optimizer!r} with train.optimizer_options={train.optimizer_options}"
        with boundary(ConfigError, what):
            _try_optimizer(build, train.lr, what, is_shared=train.ranks > 1)
    decay = find_decay(config)
    if callable(decay):
        with boundary(ConfigError, f"train.decay={train.decay!r}"):
            for step in (0, max(0, train.steps - 1)):
                try:
                    compute_lr(step, base=1.0, warmup_steps=0, total_steps=train.steps, decay=decay)
                except TrainingError as error:
                    raise ConfigError(f"train.decay={config.train.decay!r}: {error}") from None


def _try_optimizer(build: BuildOptimizer, lr: float, what: str, *, is_shared: bool) -> None:
    parameters = [torch.nn.Parameter(torch.linspace(0.5, 1.0, 12).view(4, 3)), torch.nn.Parameter(torch.ones(3))]
    optimizer = _build(build, parameters, lr, what)
    _step(optimizer, parameters, 1)
    for parameter, state in optimizer.state.items():
        if not any(parameter is each for each in parameters):
            raise ConfigError(
                f"{what} has state that belongs to no parameter; a checkpoint stores tensors per parameter only"
            )
        for key, value in state.items():
            if not torch.is_tensor(value):
                raise ConfigError(
                    f"{what} stores {key!r} as {type(value).__name__}; checkpoints contain only tensors, so that "
                    "nothing is unpickled: store it as a tensor"
                )
            if is_shared and value.ndim and value.shape != parameter.shape:
                raise ConfigError(
                    f"{what} stores {key!r} of shape {tuple(value.shape)} for a parameter of shape "
                    f"{tuple(parameter.shape)}; ranks shard state in the same way as the parameter: use train.ranks=1"
                )
    twins = [torch.nn.Parameter(parameter.detach().clone()) for parameter in parameters]
    twin = _build(build, twins, lr, what)
    for mine, theirs in zip(parameters, twins, strict=True):
        if mine in optimizer.state:
            twin.state[theirs] = {key: value.clone() for key, value in optimizer.state[mine].items()}
    for number in (2, 3):
        _step(optimizer, parameters, number)
        _step(twin, twins, number)
    if not all(torch.equal(mine, theirs) for mine, theirs in zip(parameters, twins, strict=True)):
        raise ConfigError(
            f"{what} does not continue from its per-parameter state, so a resumed run would differ; store all of it in "
            "optimizer.state, as tensors"
        )


def _build(build: BuildOptimizer, parameters: list[torch.nn.Parameter], lr: float, what: str) -> torch.optim.Optimizer:
    groups = [{"params": [parameter], "weight_decay": 0.1 * (parameter.ndim > 1)} for parameter in parameters]
    optimizer: Any = build(groups, lr)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(f"{what} returns a {type(optimizer).__name__}; it must return a torch.optim.Optimizer")
    stepped = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if [id(parameter) for parameter in stepped] != [id(parameter) for parameter in parameters]:
        raise ConfigError(f"{what} does not update the parameter groups that it is given")
    return optimizer


def _step(optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], number: int) -> None:
    for parameter in parameters:
        parameter.grad = torch.linspace(-1.0, 1.0, parameter.numel()).view(parameter.shape) / number
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
