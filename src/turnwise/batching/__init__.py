"""From trajectories to packed micro-batches."""
