"""Miniature programs with a bug, repaired by running tests, opening what they blame and editing."""
