"""Outcome and process reward models: labels of steps, models that learn them, what they are used for."""
