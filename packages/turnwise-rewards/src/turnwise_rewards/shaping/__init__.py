"""Parts of a reward beside the task's own: each a named kind with its own switch, and calibration of a stated
confidence."""
