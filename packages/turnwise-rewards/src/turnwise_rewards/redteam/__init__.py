"""Policies that attack a reward instead of a task, and what compares the reward that they get with the truth."""
