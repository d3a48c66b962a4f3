"""Learners: decide what of a batch of trajectories trains, and with what weight. Imports neither torch nor
transformers."""
