"""The run folder: config, metrics, trajectories, evaluations and checkpoints; atomic, readable without torch."""
