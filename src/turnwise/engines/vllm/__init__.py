"""vLLM under its own interpreter, with weights that are staged, checked, loaded and verified by a canary."""

from turnwise.engines.vllm.engine import VllmEngine

__all__ = ["VllmEngine"]
