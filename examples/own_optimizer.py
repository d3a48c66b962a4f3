"""Your own optimizer and schedule: Lion, with a rate that falls with the root of the step.

turnwise train recipes/search_r1/tiny.toml train.lr=1e-4 train.optimizer=own_optimizer:build_lion \
    "train.optimizer_options={beta=0.98}" train.decay=own_optimizer:fall_as_root
(with this folder on PYTHONPATH).
"""

from typing import Any

import torch


class Lion(torch.optim.Optimizer):
    """Steps of one size along the sign of a momentum.

    Source: Chen et al. 2023, arXiv 2302.06675, algorithm 2. Everything it needs to continue is in `state`, as tensors.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                direction = (0.9 * momentum + 0.1 * parameter.grad).sign()
                parameter -= group["lr"] * (direction + group["weight_decay"] * parameter)
                momentum.lerp_(parameter.grad, 1 - group["beta"])


def build_lion(groups: list[dict[str, Any]], lr: float, *, beta: float = 0.99) -> torch.optim.Optimizer:
    """Called by `train.optimizer`: `groups` hold parameters and their weight decay, options are passed by name."""
    return Lion(groups, {"lr": lr, "beta": beta})


def fall_as_root(step: int, total: int) -> float:
    """Called by `train.decay` with the step after the warm-up, from 0, and the number of such steps; returns a factor
    of `train.lr`."""
    return float((1 + step) ** -0.5)


if __name__ == "__main__":
    weight = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
    lion = build_lion([{"params": [weight], "weight_decay": 0.0}], 0.25)
    weight.grad = torch.tensor([3.0, -0.5])
    lion.step()
    # One size whatever the gradient: 1 - 0.25 and 1 + 0.25. The fourth step has a rate of 1 / sqrt(4).
    print(weight.tolist(), fall_as_root(3, 100))
