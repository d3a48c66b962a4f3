"""The in-process engine: samples from the trainer's very parameters, so there is nothing to sync."""

from turnwise.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
