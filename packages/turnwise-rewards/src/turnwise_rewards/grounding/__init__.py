"""Claims of a report held against the passages that its episode retrieved."""
