"""What the package's commands do with a run."""
