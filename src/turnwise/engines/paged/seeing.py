"""The pictures in an engine's steps: encoded once per weight version, laid over the tokens that stand for them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedModel

from turnwise.core.keys import Span
from turnwise.core.pictures import PlacedImages
from turnwise.core.positions import number_positions
from turnwise.models.checksums import sum_tensors
from turnwise.models.vision.eyes import Eyes
from turnwise.models.vision.features import Features
from turnwise.models.vision.placing import Placed, place_features
from turnwise.models.vision.tower import list_tower

Run = tuple[int, int, int, int]
"""Adjacent tokens of a step: index of the request, position of the first one, their number, place in the flat batch."""


MAX_PICTURES = 1024
"""Pictures whose features are kept; one picture of 256 places and 2,048 numbers takes 2 MB in float32."""


@dataclass(slots=True)
class SeenCounts:
    """Counts since the engine was built; see `EngineStatistics`."""

    num_encoded_pictures: int = 0
    num_reused_pictures: int = 0
    num_image_places: int = 0
    encode_s: float = 0.0


class KnownPictures:
    """Features of the pictures that requests showed last, until the weights of the tower change."""

    def __init__(self, model: PreTrainedModel, eyes: Eyes) -> None:
        self.counts = SeenCounts()
        self._model = model
        self._eyes = eyes
        self._features: OrderedDict[str, Features] = OrderedDict()
        self._sums: Mapping[str, int] | None = None
        """Checksums of the tower's weights that computed the features; None before the first."""
        self._renewals = 0
        """Times that the features were forgotten: what was encoded before the last one is not kept."""
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Take over changed weights: forgets all features unless those of the tower are the same.

        Whether gradients are computed says nothing: an engine may sample from a copy without any."""
        if self._sums is None:
            return
        sums = self._sum_tower()
        if sums != self._sums:
            with self._lock:
                self._features.clear()
                self._sums = sums
                self._renewals += 1

    def _sum_tower(self) -> Mapping[str, int]:
        modules = list_tower(self._model)
        return sum_tensors(
            {f"{name}.{each}": p for name, module in modules.items() for each, p in module.named_parameters()}
        )

    def place(self, shown: Sequence[Sequence[Span]], starts: Sequence[Run]) -> Placed | None:
        """Return the features of all places in a step; None if there are none. `shown` are the places in the prompts of
        its requests."""
        sources = {
            at + token - start: (span.digest, span.offset + token - span.start)
            for index, start, count, at in starts
            for span in shown[index]
            for token in range(max(start, span.start), min(start + count, span.start + span.length))
        }
        if not sources:
            return None
        images = PlacedImages.of(sources)
        self.counts.num_image_places += len(sources)
        return place_features(self._encode(images.digests), images, self._model.device)

    def knows(self, digests: Iterable[str]) -> bool:
        """Whether the features of all these pictures are known."""
        return all(digest in self._features for digest in digests)

    def encode_ahead(self, digests: Sequence[str]) -> None:
        """Encode what is not known yet; may run in another thread than steps do."""
        self._add([digest for digest in digests if digest not in self._features])

    def _encode(self, digests: Sequence[str]) -> list[Features]:
        missing = [digest for digest in digests if digest not in self._features]
        self.counts.num_reused_pictures += len(digests) - len(missing)
        encoded = self._add(missing)
        with self._lock:
            features = [encoded.get(digest) or self._features[digest] for digest in digests]
            for digest in digests:
                self._features.move_to_end(digest)
            while len(self._features) > MAX_PICTURES:
                self._features.popitem(last=False)
        return features

    def _add(self, missing: Sequence[str]) -> Mapping[str, Features]:
        """Encode pictures, and keep their features unless the weights have changed meanwhile."""
        if not missing:
            return {}
        started, renewals = time.perf_counter(), self._renewals
        if self._sums is None:
            self._sums = self._sum_tower()
        encoded = dict(zip(missing, self._eyes.encode(self._model, missing), strict=True))
        with self._lock:
            self.counts.encode_s += time.perf_counter() - started
            self.counts.num_encoded_pictures += len(missing)
            if renewals == self._renewals:
                self._features.update(encoded)
        return encoded


def number_step(shown: Sequence[Sequence[Span]], starts: Sequence[Run], counted: np.ndarray) -> np.ndarray:
    """Return the positions of a step's tokens: `counted [T]`, those counted from each request's start, or `[3, T]` if a
    picture numbers its places by time, row and column. `shown` as in `KnownPictures.place`."""
    axes = [start for start in starts if any(span.grid is not None for span in shown[start[0]])]
    if not axes:
        return counted
    numbers = np.tile(counted, (3, 1))
    for index, start, count, at in axes:
        length = max(start + count, *(span.start + span.length for span in shown[index]))
        numbers[:, at : at + count] = number_positions(length, shown[index])[:, start : start + count]
    return numbers
