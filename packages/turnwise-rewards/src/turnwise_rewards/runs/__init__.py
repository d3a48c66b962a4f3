"""What the package's commands do with recipes and run folders."""
