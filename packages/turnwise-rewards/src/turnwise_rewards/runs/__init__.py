"""What the package's commands do with run folders."""
