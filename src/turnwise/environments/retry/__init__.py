"""Failing, saying why, and trying again with that in view."""
