"""Stands in for a part of vLLM."""
