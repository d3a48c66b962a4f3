"""Ways to learn from groups of trajectories: what trains, and how much. Imports neither torch nor transformers."""
