"""The run folder: config, metrics, trajectories, evaluations, checkpoints; written atomically, read back without
torch."""
