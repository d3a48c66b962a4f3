"""Documents for continual pre-training: first- and higher-order actions, and the controls they are compared with."""
