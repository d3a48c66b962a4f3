"""Text houses: find a thing, change it, and bring it where it is wanted, by ALFWorld's commands."""
