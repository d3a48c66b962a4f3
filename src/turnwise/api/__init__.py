"""Functions for scripts and notebooks: train an environment, read a run. The package `turnwise` exports them."""
