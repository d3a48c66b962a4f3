"""Turnwise: reinforcement learning for language-model agents on multi-turn, tool-using tasks.

Importing this package is cheap: torch, transformers and every optional extra are imported where they are used.
"""

__version__ = "0.1.0"
