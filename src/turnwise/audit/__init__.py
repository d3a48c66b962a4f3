"""Prove that a stored run trained exactly what it sampled, and explain the credit of its trajectories."""
