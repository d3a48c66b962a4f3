"""Converts trajectories to packed micro-batches."""
