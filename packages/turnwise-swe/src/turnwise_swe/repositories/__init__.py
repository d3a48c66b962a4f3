"""Real repositories without Docker: their trees, their measured suites, bugs in them, and grades of patches."""
