"""Stands in for vLLM's module of that name."""

from dataclasses import dataclass


@dataclass
class LoRARequest:
    """Which adapter a request is for."""

    lora_name: str
    lora_int_id: int
    lora_path: str
