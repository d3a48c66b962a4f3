"""The model's own cache, for one conversation or several together, with which the generic path samples.

A `State` is the model's memory of one conversation: keys and values, windows of them, recurrent and convolutional
states, whatever its cache contains. States are values: computing with one returns a new one. Several advance together
as rows of one cache; shorter ones are padded on the left and hidden by a mask, with their own positions. Rows stay
together from step to step, and are copied only when others join or leave."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from turnwise.core.errors import EngineError
from turnwise.models.routing import follow
from turnwise.models.vision.inputs import EMBEDDED

OVER_TIME = ("keys", "values", "indexer_keys")
"""Attributes of a cache layer whose second-to-last dimension is the sequence; all others have a fixed size."""
CACHES = ("past_key_values", "cache_params")
"""Names that models use for their cache, in arguments and results."""


@dataclass(slots=True, eq=False)
class _Batch:
    """A cache of several rows."""

    cache: Cache
    lengths: list[int]
    """Tokens in each row; rows shorter than the longest are padded on the left."""
    is_ours: bool = False
    """Whether the batch has only one user and may change in place."""


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A model's memory of one conversation."""

    batch: _Batch
    row: int
    length: int
    """Number of tokens read."""


class Caches:
    """Begins, advances and extends states for one model."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._takes = set(inspect.signature(model.forward).parameters)

    def begin(self, ids: torch.Tensor, shown: Mapping[str, Any] | None = None) -> tuple[torch.Tensor, State]:
        """Return logits `[1, N, V]` after each of `ids [1, N]`, and the state. `shown` are the arguments of the forward
        in place of ids of which some stand for pictures (`vision.inputs.embed`). Raises EngineError for a cache of a
        kind other than transformers' own."""
        logits, cache = self._run(ids, None, {} if shown is None else shown)
        return logits, State(_Batch(cache, [ids.shape[1]]), 0, ids.shape[1])

    def extend(
        self, state: State, ids: torch.Tensor, shown: Mapping[str, Any] | None = None
    ) -> tuple[torch.Tensor, State]:
        """Return logits `[1, N, V]` after each further token of `ids [1, N]`, and the new state; `shown` as in
        `begin`."""
        logits, (after,) = self._advance(self._merge([state]), ids, {} if shown is None else shown)
        return logits, after

    def step(self, states: Sequence[State], ids: torch.Tensor) -> tuple[torch.Tensor, list[State]]:
        """Return logits `[B, 1, V]` after one further token `ids [B, 1]` per state, and the new states. The given
        states must not be used again."""
        batch = states[0].batch
        is_whole = batch.is_ours and [(s.batch, s.row) for s in states] == [
            (batch, i) for i in range(len(batch.lengths))
        ]
        rows = list(states) if is_whole else self._merge(states)
        return self._advance(rows, ids, {})

    def detach(self, state: State) -> State:
        """Return the state on its own, without the memory of other conversations."""
        if len(state.batch.lengths) == 1:
            return state
        (alone,) = self._merge([state])
        alone.batch.is_ours = False
        return alone

    def _advance(
        self, rows: Sequence[State], ids: torch.Tensor, shown: Mapping[str, Any]
    ) -> tuple[torch.Tensor, list[State]]:
        """Run `ids [B, N]` after all rows of a batch that is ours."""
        batch, count = rows[0].batch, ids.shape[1]
        longest = max(batch.lengths)
        options: dict[str, Any] = dict(shown)
        lengths = torch.tensor(batch.lengths, device=ids.device)
        if "position_ids" in self._takes:
            options["position_ids"] = lengths[:, None] + torch.arange(count, device=ids.device)
        if min(batch.lengths) < longest and any(_has_time(layer) for layer in batch.cache.layers):
            places = torch.arange(longest + count, device=ids.device)
            options["attention_mask"] = (places >= (longest - lengths)[:, None]).long()
        logits, batch.cache = self._run(ids, batch.cache, options)
        batch.lengths = [length + count for length in batch.lengths]
        return logits, [State(batch, row, length) for row, length in enumerate(batch.lengths)]

    def _run(self, ids: torch.Tensor, cache: Cache | None, options: Mapping[str, Any]) -> tuple[torch.Tensor, Cache]:
        name = next((name for name in CACHES if name in self._takes), None)
        if name is None:
            raise EngineError(f"{type(self._model).__name__} does not accept a cache")
        follow(None)
        given: dict[str, Any] = {} if cache is None else {name: cache}
        if EMBEDDED not in options:
            given["input_ids"] = ids
        output = self._model(use_cache=True, **given, **options)
        kept = output.get(name)
        if not isinstance(kept, Cache) or not kept.layers:
            raise EngineError(
                f"{type(self._model).__name__} uses a {type(kept).__name__}, which cannot be split among conversations"
            )
        return output.logits, kept

    def _merge(self, states: Sequence[State]) -> list[State]:
        """Copy the states into the rows of one new batch that is ours."""
        template = states[0].batch.cache
        merged = copy.copy(template)
        for name in vars(template):
            if name != "layers":
                setattr(merged, name, _merge_values([getattr(state.batch.cache, name) for state in states], states))
        merged.layers = [
            _merge_layers([state.batch.cache.layers[index] for state in states], states)
            for index in range(len(template.layers))
        ]
        batch = _Batch(merged, [state.length for state in states], is_ours=True)
        return [State(batch, row, state.length) for row, state in enumerate(states)]


def _has_time(layer: Any) -> bool:
    """Whether a layer stores something for every token."""
    return any(isinstance(value, torch.Tensor) and value.numel() > 0 for value in _over_time(layer).values())


def _over_time(layer: Any) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in OVER_TIME if getattr(layer, name, None) is not None}


def _merge_layers(layers: Sequence[Any], states: Sequence[State]) -> Any:
    """Build a new layer with one row from each of `layers`, the row of its state; it shares nothing with them."""
    merged = copy.copy(layers[0])
    for name, value in vars(layers[0]).items():
        values = [getattr(layer, name) for layer in layers]
        if name in OVER_TIME and isinstance(value, torch.Tensor) and value.numel():
            cut = [
                tensor[state.row : state.row + 1].narrow(
                    -2, max(0, tensor.shape[-2] - state.length), _kept(tensor, state)
                )
                for tensor, state in zip(values, states, strict=True)
            ]
            longest = max(tensor.shape[-2] for tensor in cut)
            filled = [functional.pad(tensor, (0, 0, longest - tensor.shape[-2], 0)) for tensor in cut]
            setattr(merged, name, torch.cat(filled))
        elif name == "cumulative_length":
            setattr(merged, name, max(state.length for state in states))
        else:
            setattr(merged, name, _merge_values(values, states))
    return merged


def _kept(tensor: torch.Tensor, state: State) -> int:
    """Return how many of a row's tokens a tensor over time still contains: a window keeps the last ones."""
    return min(int(tensor.shape[-2]), state.length)


def _merge_values(values: Sequence[Any], states: Sequence[State]) -> Any:
    """Copy the rows of tensors that have one row per conversation, also in lists and dicts; anything else is taken from
    the first."""
    first = values[0]
    if isinstance(first, dict):
        return {key: _merge_values([value[key] for value in values], states) for key in first}
    if type(first) in (list, tuple):
        return type(first)(_merge_values(each, states) for each in zip(*values, strict=True))
    if not isinstance(first, torch.Tensor) or first.ndim < 2:
        return first
    if any(value.shape[0] != len(state.batch.lengths) for value, state in zip(values, states, strict=True)):
        raise EngineError(
            f"the first dimension of a cache tensor of shape {tuple(first.shape)} is not its conversations"
        )
    return torch.cat([value[state.row : state.row + 1] for value, state in zip(values, states, strict=True)])
