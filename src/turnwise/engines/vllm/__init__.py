"""vLLM under an interpreter of its own, with weights that are staged, verified, loaded and proved."""

from turnwise.engines.vllm.engine import VllmEngine

__all__ = ["VllmEngine"]
