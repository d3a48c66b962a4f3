"""Rewards where no checker exists, one folder per kind, and a red team that attacks rewards."""

from pathlib import Path

__version__ = "0.1.0"

RECIPES = Path(__file__).parent / "recipes"
"""The package's recipes, for the entry-point group `turnwise.recipes`."""
