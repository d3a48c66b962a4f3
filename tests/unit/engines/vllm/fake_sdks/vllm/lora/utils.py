"""Stands in for vLLM's module of that name."""

from typing import Any


def parse_fine_tuned_lora_name(name: str, mapper: Any) -> tuple[str, bool]:
    """The layer of a tensor of peft's file, and whether it is A."""
    layer, _, side = name.removeprefix("base_model.model.").removesuffix(".weight").rpartition(".lora_")
    return layer, side == "A"
