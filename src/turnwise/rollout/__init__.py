"""Turns tasks into scored trajectories: the loop, its limits, groups and failures."""
