"""Estimators and losses: pure functions, no I/O, no config objects."""
