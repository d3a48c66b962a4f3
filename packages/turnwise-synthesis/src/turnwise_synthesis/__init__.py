"""Data that makes agents, one folder per kind: documents, formal questions, inverted questions, research."""

from pathlib import Path

__version__ = "0.1.0"

RECIPES = Path(__file__).parent / "recipes"
"""The package's recipes, for the entry-point group `turnwise.recipes`."""
