"""What scripts and notebooks call: train an environment, read a run. Names are offered by `turnwise` itself."""
