"""Held-out evaluation with intervals."""
