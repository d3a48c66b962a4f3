"""Positions with three axes, against the functions of the models that have them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conversations import write
from tiny_seeing import build_seeing, draw

from turnwise.core.positions import number_positions


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_positions_are_those_of_the_models_own_function(kind: str) -> None:
    model, _, eyes = build_seeing(kind)
    conversation = write(eyes, [40, 41], draw(0), [42], draw(1, 90, 30), [43, 44], draw(2, 20, 70), [45])
    ids = torch.tensor([conversation.token_ids])
    grids = torch.cat(
        [eyes.sight.prepare(eyes.pictures.read(span.digest))["image_grid_thw"] for span in conversation.spans]
    )
    kinds = ids.eq(eyes.layout.place_id).int()
    theirs, delta = model.model.get_rope_index(ids, kinds, image_grid_thw=grids)
    assert np.array_equal(theirs[:, 0].numpy(), number_positions(ids.shape[1], conversation.spans))
    following = number_positions(ids.shape[1] + 1, conversation.spans)[:, -1]
    assert following.tolist() == [ids.shape[1] + int(delta)] * 3
