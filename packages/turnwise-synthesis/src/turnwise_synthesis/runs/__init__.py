"""What the package's commands do."""
