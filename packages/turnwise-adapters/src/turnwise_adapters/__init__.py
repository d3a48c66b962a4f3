"""Environments of other packages, each as a family of text games, and Turnwise's environments for other packages."""

from pathlib import Path

__version__ = "0.1.0"

RECIPES = Path(__file__).parent / "recipes"
"""The package's recipes, for the entry-point group `turnwise.recipes`."""
