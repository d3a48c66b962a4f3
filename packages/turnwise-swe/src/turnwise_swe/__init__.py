"""Software engineering for Turnwise: real repositories, bugs planted in them, an environment to repair them."""

from pathlib import Path

__version__ = "0.1.0"

RECIPES = Path(__file__).parent / "recipes"
"""The package's recipes, for the entry-point group `turnwise.recipes`."""
