"""What the commands of the package do."""
