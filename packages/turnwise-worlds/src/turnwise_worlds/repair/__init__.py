"""Miniature programs with a bug, repaired by running tests, opening the lines that they blame, and editing."""
