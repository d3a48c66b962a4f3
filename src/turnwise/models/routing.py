"""Routing of tokens to experts in a mixture-of-experts model: recorded while an engine samples, and replayed in
training (R3, arXiv 2510.11370).

A router compares its logits and chooses the `k` largest. Two computations that differ by rounding, or by an update of
the weights, may choose different experts for a token, and then log-probabilities jump. A forward pass that replays
recorded experts computes the gate weights from its own logits at these experts, so the router still learns.

The keyword `routing` is passed through a model's forward to the attention of each layer, which runs before the router
of that layer in the same thread, even when a layer is recomputed for the backward pass; there `follow` records it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from turnwise.core.types import UNRECORDED

ATTENTION_NAME = "turnwise"
"""The attention of the fast path (`models.attention`), which records what routers must follow."""
FAMILIES = ("qwen3_moe", "qwen2_moe", "olmoe", "mixtral", "gpt_oss")
"""Architectures in transformers whose routers choose the largest of a softmax over all experts."""
SOFTMAX_LAST = ("gpt_oss",)
"""Those among them that compute the softmax over the chosen experts: the same weights, rounded differently."""
MAX_EXPERTS = UNRECORDED
"""Experts are recorded in one byte, one value of which marks a missing record."""
_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")


class Routing(Protocol):
    """Controls the routers in one forward pass."""

    def choose(self, layer: int, chosen: torch.Tensor) -> torch.Tensor | None:
        """Return the experts `[T, k]` to use in place of those that the router has `chosen` `[T, k]`; None keeps these.

        `layer` counts the layers that have a router, from 0.
        """
        ...


class _Followed(threading.local):
    routing: Routing | None = None


_followed = _Followed()


def follow(routing: Routing | None) -> None:
    """Make the next routers of this thread ask `routing`; None lets them choose."""
    _followed.routing = routing


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingShape:
    """The number of choices that a model makes per token."""

    num_layers: int
    """Layers that have a router."""
    num_chosen: int
    """Experts per token and layer."""


class ReplayedRouting:
    """Replays recorded experts. Implements `Routing`."""

    def __init__(self, experts: torch.Tensor) -> None:
        """`experts [T, layers, k]` integers; at `UNRECORDED` the router chooses."""
        self._experts = experts
        self.moved = torch.zeros(len(experts), dtype=torch.bool, device=experts.device)
        """`[T]` whether the router itself would have chosen a different set of experts, in any layer so far."""

    def choose(self, layer: int, chosen: torch.Tensor) -> torch.Tensor:
        """See `Routing`. Raises IndexError if the record has fewer layers than the model."""
        recorded = self._experts[:, layer].long()
        taken = torch.where(recorded == UNRECORDED, chosen, recorded)
        self.moved |= (taken.sort(-1).values != chosen.sort(-1).values).any(-1)
        return taken


def _read_config(model: torch.nn.Module) -> Any:
    """Return the config of a model's text part."""
    config: Any = model.config
    return config.get_text_config()


def is_mixture(model: torch.nn.Module) -> bool:
    """Whether the model routes tokens to experts, by an architecture known here or not."""
    config = _read_config(model)
    return any((getattr(config, name, None) or 0) > 1 for name in _COUNTS)


def find_routing(model: torch.nn.Module) -> RoutingShape | None:
    """Return the choices that can be recorded and replayed; None for a dense model, for a mixture that is not in
    `FAMILIES` or has more than `MAX_EXPERTS` experts, and for one that runs with its own attention: their routers
    choose anew in training, which would match the sampler if there were no rounding."""
    config = _read_config(model)
    if config._attn_implementation != ATTENTION_NAME:
        return None
    routers = _list_routers(model)
    return RoutingShape(num_layers=len(routers), num_chosen=int(routers[0].top_k)) if routers else None


def attach_routing(model: torch.nn.Module) -> None:
    """Make the routers of a model follow the keyword `routing` of its forward. Dense models are left unchanged."""
    config = _read_config(model)
    for layer, router in enumerate(_list_routers(model)):
        router.turnwise_layer = layer
        router.turnwise_softmax_last = config.model_type in SOFTMAX_LAST
        router.register_forward_hook(_route)


def is_attached(model: torch.nn.Module) -> bool:
    """Whether the routers of a model follow the keyword `routing`; if not, they silently choose for themselves."""
    return all(hasattr(router, "turnwise_layer") for router in _list_routers(model))


def _list_routers(model: torch.nn.Module) -> list[Any]:
    config = _read_config(model)
    if config.model_type not in FAMILIES:
        return []
    routers = [
        part
        for name, part in model.named_modules()
        if name.endswith((".mlp.gate", ".mlp.router")) and hasattr(part, "top_k")
    ]
    return routers if all(router.num_experts <= MAX_EXPERTS for router in routers) else []


def _route(router: Any, _: Any, output: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...] | None:
    """Hook after the router's forward, whose output is logits `[T, experts]`, gate weights and experts `[T, k]`."""
    routing = _followed.routing
    taken = None if routing is None else routing.choose(router.turnwise_layer, output[2])
    if taken is None:
        return None
    if router.turnwise_softmax_last:
        weights = output[0].gather(-1, taken).softmax(-1)
    else:
        weights = weigh_experts(output[0], taken, normalised=_normalises(router))
    return output[0], weights.to(output[1].dtype), taken


def _normalises(router: Any) -> bool:
    # Mixtral's router has no such option: it always does.
    return bool(getattr(router, "norm_topk_prob", True))


def weigh_experts(logits: torch.Tensor, experts: torch.Tensor, *, normalised: bool) -> torch.Tensor:
    """Compute gate weights `[T, k]` for `experts [T, k]` in float32: the softmax of `logits [T, experts]` at these
    experts, divided by their sum if `normalised` (arXiv 2510.11370: the experts are the sampler's, the logits the
    trainer's)."""
    weights = logits.softmax(-1, dtype=torch.float).gather(-1, experts)
    return weights / weights.sum(-1, keepdim=True) if normalised else weights
