"""What each `train.algorithm` reads and does: one row, one file each. `building/` makes their learners."""
