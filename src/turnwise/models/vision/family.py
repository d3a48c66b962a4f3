"""What Turnwise knows of a family of vision-language models; one file each beside this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel

from turnwise.models.vision.features import Features

Prepared = Mapping[str, torch.Tensor]
"""What a family's image processor makes of one picture."""
Settings = Mapping[str, Any]
"""Arguments of a class: what config.json and processor_config.json contain."""


class Family(Protocol):
    """Writes the pictures of one family of models into prompts, and encodes them.

    The text of a picture is what the family's processor in transformers puts in the place of its marker.
    """

    @property
    def tokens(self) -> tuple[str, ...]:
        """Special tokens that a tokenizer must have to write a picture; the first one is the place."""
        ...

    @property
    def marker(self) -> str:
        """What a message's text shows at a picture's place: with the tokens around it that the family's chat template
        writes itself."""
        ...

    @property
    def replaced(self) -> str:
        """The special token in `marker` that the processor replaces by `write`."""
        ...

    @property
    def options(self) -> Settings:
        """Arguments with which the family's processor calls its image processor, for one picture."""
        ...

    def describe(self) -> Settings:
        """Return the name and the arguments of the family's processor, as processor_config.json contains them."""
        ...

    def write(self, prepared: Prepared) -> str:
        """Return the text that takes the place of the marker's special token."""
        ...

    def find_grid(self, prepared: Prepared) -> tuple[int, int, int] | None:
        """Return time, rows and columns of a picture's places where positions have these axes (M-RoPE, arXiv
        2409.12191); None elsewhere."""
        ...

    def encode(self, model: PreTrainedModel, pictures: Sequence[Prepared]) -> list[Features]:
        """Encode pictures whose tensors have the same shapes; differentiable."""
        ...
