"""Pages too large to read at once: a policy that sees finds the marked cell in the overview, and zooms in to read."""
