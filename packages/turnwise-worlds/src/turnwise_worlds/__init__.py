"""Worlds for Turnwise, one folder per environment family, and what measures them: tree search, exploitability."""

from pathlib import Path

__version__ = "0.1.0"

RECIPES = Path(__file__).parent / "recipes"
"""The package's recipes, for the entry-point group `turnwise.recipes`."""
