"""The package's commands."""
