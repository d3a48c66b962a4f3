"""Vision-language models of sizes that vLLM's kernels take, and prompts with pictures for them."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tiny_seeing import CONFIGS, build_seeing
from transformers import PreTrainedModel

from turnwise.core.keys import Span
from turnwise.core.messages import ImagePart
from turnwise.core.types import Completion, Prompt, to_ids
from turnwise.engines.canary import score_prompt
from turnwise.models.build import load_model
from turnwise.models.vision.eyes import Eyes, place_eyes

HEADS = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
AXES = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]}
"""Of heads of 32; Qwen3-VL interleaves them."""
TOWERS: Mapping[str, Mapping[str, Any]] = {
    "qwen2_vl": {"embed_dim": 64, "hidden_size": 64},
    "qwen2_5_vl": {"hidden_size": 64, "out_hidden_size": 64},
    "qwen3_vl": {"hidden_size": 64, "out_hidden_size": 64},
}
"""What is wider in a tower; in the others the rows."""
OF_CHECKPOINTS = {"llava_clip": "vision_model.", "llava_siglip": "vision_model."}
"""What the names of a tower's weights begin with in checkpoints, where transformers leaves it out."""
SHARP = 5.0
"""Factor of the weights: a picture then changes what is sampled."""


def build_served(kind: str) -> tuple[PreTrainedModel, Eyes]:
    """Build a model of `tiny_seeing.CONFIGS` with heads of 32, as if it came from a checkpoint."""
    config = CONFIGS[kind]
    text, vision = dict(config["text_config"]) | HEADS, dict(config["vision_config"])
    if "rope_parameters" in text:
        text["rope_parameters"] = AXES | ({"mrope_interleaved": True} if kind == "qwen3_vl" else {})
    if kind not in ("qwen2_vl", "qwen2_5_vl", "internvl"):
        text["head_dim"] = 32
    vision |= TOWERS.get(kind, {"hidden_size": 64})
    model, _, eyes = build_seeing(kind, seed=1, text_config=text, vision_config=vision)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(SHARP)
    if kind in OF_CHECKPOINTS:
        model = _load_again(model, OF_CHECKPOINTS[kind])
        place_eyes(model, eyes)
    return model, eyes


def _load_again(model: PreTrainedModel, start: str) -> PreTrainedModel:
    """Save a model under the names of its checkpoints, and load it."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        file = Path(folder) / "model.safetensors"
        weights = load_file(file)
        tower = "vision_tower."
        names = {name: name.replace(tower, tower + start) if name.startswith(tower) else name for name in weights}
        save_file({names[name]: value for name, value in weights.items()}, file, metadata={"format": "pt"})
        return load_model(Path(folder), dtype="float32")


def lay_out(eyes: Eyes, *parts: ImagePart | Sequence[int]) -> Prompt:
    """A prompt of tokens and pictures, which are put into the store."""
    ids: list[int] = []
    images: list[Span] = []
    for part in parts:
        if isinstance(part, ImagePart):
            eyes.pictures.put(part)
            assert eyes.layout is not None
            laid = eyes.layout.lay_out(part)
            images += [span.shift(len(ids)) for span in laid.images]
            ids += laid.token_ids.tolist()
        else:
            ids += part
    return Prompt(token_ids=to_ids(ids), images=tuple(images))


def list_gaps(model: PreTrainedModel, prompt: Prompt, completion: Completion) -> list[float]:
    """Distances between a completion's log-probabilities and the model's, computed anew."""
    whole = Prompt(token_ids=to_ids([*prompt.token_ids, *completion.token_ids]), images=prompt.images)
    expected = score_prompt(model, whole).logprobs[len(prompt.token_ids) - 1 :]
    gaps: list[float] = np.abs(expected - completion.logprobs).tolist()
    return gaps


def change_tower(model: PreTrainedModel) -> None:
    """Change the weights of the tower alone."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ("vision" in name or "visual" in name) and parameter.dim() > 1:
                parameter.mul_(1.1)
