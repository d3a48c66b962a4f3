"""Judges: models, servers and functions that score what an environment asks about."""
