"""Runs a model's output layer on some rows at a time, so that logits of a whole micro-batch never exist at once.

A row of logits is as long as the vocabulary: 16,384 rows of 151,936 numbers take 10 GB in float32, and
log-probabilities and their gradients three times as much again. Here the logits of only one chunk of rows exist at a
time. Only the results of `reduce` are kept; the backward pass recomputes each chunk's logits (known as fused linear
cross-entropy).

Logits are those of the model's own forward, run on rows of hidden states in place of its layers: whatever it does after
its output layer (a soft cap, a scale) is applied to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

CHUNK_NUMBERS = 1 << 26
"""Maximum number of logits that exist at once: 256 MiB in float32, and three times that in a backward pass."""
Reduce = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]
"""Maps the logits `[C, V]` of some rows and their indices `[C]` to tensors whose first dimensions are joined over all
rows."""


class Head:
    """Maps hidden states `[N, H]` to logits `[N, V]`, as the model's own forward does."""

    def __init__(self, model: PreTrainedModel, like: Any) -> None:
        """`model` has layers below its output layer (`model.base_model`), whose output is like `like`; its parameters
        are used in place."""
        layers = _find_layers(model)
        assert layers is not None
        # Another object of the same class on the same parameters, without the hooks of a rank's root.
        self._model: Any = object.__new__(type(model))
        self._model.__dict__.update(model.__dict__)
        self._layers = _Given(model.base_model, like)
        self._model.__dict__["_modules"] = {**model._modules, layers: self._layers}

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Return the parameters that train: those of the output layer, even if it is the embedding."""
        return [parameter for parameter in self._model.parameters() if parameter.requires_grad]

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Compute logits `[N, V]` from hidden states `[N, H]`."""
        self._layers.__dict__["hidden"] = hidden[None]
        tokens = torch.zeros(1, len(hidden), dtype=torch.long, device=hidden.device)
        try:
            logits: torch.Tensor = type(self._model).forward(self._model, input_ids=tokens, use_cache=False).logits[0]
            return logits
        finally:
            self._layers.__dict__["hidden"] = None


def count_chunks(model: PreTrainedModel, num_rows: int) -> int:
    """Return the number of chunks for the logits of `num_rows` rows. It is 1 if all fit, and for a model whose output
    layer cannot be run by itself: one without layers below it, or with active dropout in it."""
    wanted: int = -(-num_rows * model.config.get_text_config().vocab_size // CHUNK_NUMBERS)
    layers = _find_layers(model)
    if wanted <= 1 or layers is None:
        return 1
    others = [
        module for name, child in model._modules.items() if name != layers and child for module in child.modules()
    ]
    if any(isinstance(module, torch.nn.Dropout) and module.training and module.p for module in others):
        return 1
    return wanted


def reduce_logits(
    head: Head, hidden: torch.Tensor, rows: torch.Tensor, reduce: Reduce, num_chunks: int
) -> tuple[torch.Tensor, ...]:
    """Apply `reduce` to the logits of `hidden [N, H]`, whose indices are `rows [N]`; with gradients to `hidden` and to
    the output layer. Gradients of the layer are added over chunks in float32 at least."""
    parts = list(zip(hidden.detach().tensor_split(num_chunks), rows.tensor_split(num_chunks), strict=True))
    if not torch.is_grad_enabled():
        return _join([reduce(head(part), indices) for part, indices in parts])
    given: Any = _InChunks.apply(head, parts, reduce, hidden, *head.parameters)  # type: ignore[no-untyped-call]
    outputs: tuple[torch.Tensor, ...] = given
    return outputs


def _find_layers(model: PreTrainedModel) -> str | None:
    """Return the name of the module that contains all layers below the output layer."""
    name = model.base_model_prefix
    return name if name in model._modules else None


def _join(outputs: list[tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.cat(parts) for parts in zip(*outputs, strict=True))


class _Given(torch.nn.Module):
    """Replaces all layers: returns hidden states that are already computed."""

    def __init__(self, layers: torch.nn.Module, like: Any) -> None:
        """`layers` supply any other attribute that the model's forward reads."""
        super().__init__()
        # Not registered as submodules: their parameters are not the output layer's.
        rest = None if isinstance(like, ModelOutput) else like[1:]
        self.__dict__ |= {"layers": layers, "output_type": type(like), "rest": rest, "hidden": None}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["layers"], name)

    def forward(self, *_: Any, **__: Any) -> Any:
        """Ignore the arguments of the layers and return the hidden states."""
        if self.rest is not None:
            return (self.hidden, *self.rest)
        return self.output_type(last_hidden_state=self.hidden)


class _InChunks(torch.autograd.Function):
    """Applies `reduce` to the logits of all parts; the backward pass recomputes the logits, a part at a time."""

    @staticmethod
    def forward(
        ctx: Any, head: Head, parts: Any, reduce: Reduce, hidden: torch.Tensor, *parameters: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return the joined outputs."""
        ctx.head, ctx.parts, ctx.reduce = head, parts, reduce
        ctx.needs_hidden = hidden.requires_grad
        ctx.set_materialize_grads(False)
        return _join([reduce(head(part), indices) for part, indices in parts])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of the hidden states and of the output layer's parameters."""
        parameters = ctx.head.parameters
        totals: list[torch.Tensor | None] = [None] * len(parameters)
        of_hidden, start = [], [0] * len(gradients)
        for part, indices in ctx.parts:
            with torch.enable_grad():
                given = part.detach().requires_grad_()
                outputs = ctx.reduce(ctx.head(given), indices)
            driven = []
            for number, (output, gradient) in enumerate(zip(outputs, gradients, strict=True)):
                end = start[number] + len(output)
                if gradient is not None and output.requires_grad:
                    driven.append((output, gradient[start[number] : end]))
                start[number] = end
            of_part: Any = [None] * (1 + len(parameters))
            if driven:
                wanted, values = zip(*driven, strict=True)
                of_part = torch.autograd.grad(wanted, [given, *parameters], values, allow_unused=True)
            of_hidden.append(torch.zeros_like(part) if of_part[0] is None else of_part[0])
            for number, gradient in enumerate(of_part[1:]):
                totals[number] = _add(totals[number], gradient)
        joined = torch.cat(of_hidden) if ctx.needs_hidden else None
        rounded = [
            None if total is None else total.to(parameter.dtype)
            for total, parameter in zip(totals, parameters, strict=True)
        ]
        return (None, None, None, joined, *rounded)


def _add(total: torch.Tensor | None, gradient: torch.Tensor | None) -> torch.Tensor | None:
    if gradient is None:
        return total
    if total is None:
        return gradient if gradient.dtype in (torch.float32, torch.float64) else gradient.float()
    return total.add_(gradient)
