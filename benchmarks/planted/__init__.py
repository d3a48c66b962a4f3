"""Attempts with one planted fault each, for `benchmarks/badcases.py`."""
