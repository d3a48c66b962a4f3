"""Checks positions with three axes: time, row and column (M-RoPE, arXiv 2409.12191)."""

from __future__ import annotations

from transformers import PreTrainedModel

from turnwise.core.errors import ConfigError


def check_axes(model: PreTrainedModel) -> None:
    """Raise ConfigError unless the three axes share all frequencies of a model's rope: Qwen3-VL computes something else
    without an error."""
    rope = getattr(model.get_decoder(), "rotary_emb", None)
    sections = getattr(rope, "mrope_section", None)
    if rope is None or sections is None:
        return
    num_frequencies = len(rope.inv_freq)
    if sum(sections) != num_frequencies:
        third = num_frequencies // 3
        raise ConfigError(
            f"text_config.rope_parameters.mrope_section={list(sections)} shares out {sum(sections)} frequencies, but "
            f"heads of this size have {num_frequencies}; use {[num_frequencies - 2 * third, third, third]}"
        )
