"""Gives a model its pictures: eyes are attached to a vision-language model, and its copies have the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.core.errors import ConfigError, EngineError, boundary
from turnwise.core.pictures import Pictures
from turnwise.models.vision.axes import check_axes
from turnwise.models.vision.family import Prepared
from turnwise.models.vision.features import Features
from turnwise.models.vision.inputs import take_deep_features
from turnwise.models.vision.layout import FamilyLayout, find_place
from turnwise.models.vision.placeholder import silence_placeholder
from turnwise.models.vision.sight import Sight, read_sight
from turnwise.pictures.store import PictureStore

_ATTRIBUTE = "_turnwise_eyes"
BATCH = 16
"""Pictures that a tower encodes at once."""


class Eyes:
    """Reads pictures from a store and encodes them. Copies of a model share it: it contains no weights."""

    def __init__(self, sight: Sight, pictures: Pictures, layout: FamilyLayout | None = None) -> None:
        self.sight = sight
        self.pictures = pictures
        self._layout = layout

    @property
    def layout(self) -> FamilyLayout:
        """How pictures are written into prompts. Raises EngineError in a process without a tokenizer."""
        if self._layout is None:
            raise EngineError("this process has no tokenizer, so it cannot write pictures into prompts")
        return self._layout

    def __deepcopy__(self, memo: dict[int, Any]) -> Eyes:
        return self

    def __reduce__(self) -> tuple[type[Eyes], tuple[Sight, Pictures]]:
        # Layouts hold a tokenizer, which only the process that renders needs.
        return Eyes, (self.sight, self.pictures)

    def encode(self, model: PreTrainedModel, digests: Sequence[str]) -> list[Features]:
        """Encode pictures of the store, one `Features` each in the same order; a repeated digest is encoded once.

        Differentiable in the parameters of the tower that require gradients. Raises StoreError if a picture is missing
        or damaged, and EngineError if the tower refuses it.
        """
        groups: dict[tuple[Any, ...], dict[str, Prepared]] = {}
        for digest in dict.fromkeys(digests):
            prepared = self.sight.prepare(self.pictures.read(digest))
            shapes = tuple((name, tuple(tensor.shape)) for name, tensor in prepared.items())
            groups.setdefault(shapes, {})[digest] = prepared
        found: dict[str, Features] = {}
        for group in groups.values():
            names = list(group)
            for start in range(0, len(names), BATCH):
                batch = names[start : start + BATCH]
                with boundary(EngineError, f"{type(model).__name__} cannot encode picture {batch[0]}"):
                    features = self.sight.family.encode(model, [group[name] for name in batch])
                for name, made in zip(batch, features, strict=True):
                    self._check_rows(name, group[name], len(made.rows))
                found.update(zip(batch, features, strict=True))
        return [found[digest] for digest in digests]

    def _check_rows(self, digest: str, prepared: Prepared, num_rows: int) -> None:
        """Raise EngineError unless a picture has as many rows as its prompt has places: with more, all later places
        would show something else, silently."""
        num_places = self.sight.count_places(prepared)
        if num_rows != num_places:
            raise EngineError(
                f"the tower makes {num_rows} rows of picture {digest}, but its prompt has {num_places} places; "
                "processor_config.json does not fit config.json: copy both from the model"
            )

    def encode_blank(self, model: PreTrainedModel) -> Features:
        """Encode a black picture that no prompt shows."""
        blank = self.sight.prepare(np.zeros((64, 64, 3), np.uint8))
        features = self.sight.family.encode(model, [blank])[0]
        self._check_rows("of one colour", blank, len(features.rows))
        return features


def attach_eyes(model: PreTrainedModel, layout: FamilyLayout, pictures: Pictures) -> None:
    """Let a vision-language model, and its later copies, see the pictures in a store.

    Raises ConfigError if the model's axes of positions do not fit its heads, or its tower cannot encode a picture.
    """
    check_axes(model)
    eyes = Eyes(layout.sight, pictures, layout)
    if model.device.type != "meta":
        _try(model, eyes)
    place_eyes(model, eyes)


@torch.no_grad()
def _try(model: PreTrainedModel, eyes: Eyes) -> None:
    """Encode a picture, so that sizes which do not fit each other are refused before anything is sampled."""
    with boundary(ConfigError, f"the tower of {type(model).__name__} cannot encode a picture; change its sizes"):
        rows = eyes.encode_blank(model).rows
    width = int(model.get_input_embeddings().weight.shape[1])
    if rows.shape[1] != width:
        raise ConfigError(
            f"the tower of {type(model).__name__} makes rows of {rows.shape[1]} numbers for a text part of {width}; "
            "change the size of its output"
        )


def place_eyes(model: PreTrainedModel, eyes: Eyes) -> None:
    """Attach these eyes to a model, whose placeholder is never sampled from then on."""
    silence_placeholder(model, find_place(model.config))
    take_deep_features(model)
    setattr(model, _ATTRIBUTE, eyes)


def share_eyes(model: PreTrainedModel, eyes: Eyes, sight: Sight | None, where: str) -> None:
    """Let another model see the pictures of `eyes` in the same prompts, prepared by its own `sight`.

    Raises ConfigError, in a message that begins with `where`, if it reads text only (None) or writes pictures as other
    tokens."""
    if sight is None:
        raise ConfigError(f"{where} reads text only, but the policy is shown pictures; use a vision-language model")
    blank = np.zeros((64, 64, 3), np.uint8)
    own, other = (each.family.write(each.prepare(blank)) for each in (sight, eyes.sight))
    if own != other:
        raise ConfigError(
            f"{where} writes a picture of 64 x 64 pixels in {len(own)} characters of tokens, the policy in "
            f"{len(other)}; use a model with the policy's image processor"
        )
    place_eyes(model, Eyes(sight, eyes.pictures))


def save_processor(model: PreTrainedModel, folder: Path) -> None:
    """Write the files of the processor of a model that sees into the folder where it is saved."""
    eyes = find_eyes(model)
    if eyes is not None:
        eyes.sight.save(folder)


def describe_eyes(model: PreTrainedModel) -> dict[str, Any] | None:
    """Return the eyes of a model as plain data, for `build_eyes`; None for one that sees nothing. Raises EngineError if
    its pictures are not in a folder, where another process finds them."""
    eyes = find_eyes(model)
    if eyes is None:
        return None
    folder = getattr(eyes.pictures, "folder", None)
    if folder is None:
        raise EngineError("another process cannot read pictures that are kept in memory; give their store a folder")
    return {"sight": eyes.sight.describe(), "pictures": str(folder)}


def build_eyes(model: PreTrainedModel, description: Mapping[str, Any] | None) -> None:
    """Attach the described eyes to a model, without a layout."""
    if description is not None:
        sight = read_sight(model.config, description["sight"])
        place_eyes(model, Eyes(sight, PictureStore(Path(description["pictures"]))))


def take_off_eyes(model: PreTrainedModel) -> None:
    """Take the eyes off a model that is sent to another process, where `build_eyes` gives it others."""
    setattr(model, _ATTRIBUTE, None)


def find_eyes(model: PreTrainedModel) -> Eyes | None:
    """Return the eyes of a model; None for one that sees nothing."""
    return getattr(model, _ATTRIBUTE, None)
