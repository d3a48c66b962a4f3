"""Moves the trainer's weights to the engines: shared parameters, or a copy in the process."""
