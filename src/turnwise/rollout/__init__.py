"""From tasks to scored trajectories: the loop, its limits, groups and failures."""
