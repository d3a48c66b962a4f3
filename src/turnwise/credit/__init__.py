"""Turns the rewards of a run into advantages: credit methods by name, their inputs, and the annotators that measure
these."""
