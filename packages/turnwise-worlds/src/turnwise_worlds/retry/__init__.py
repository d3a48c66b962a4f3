"""Failing, saying why, and trying again with that reason in view."""
