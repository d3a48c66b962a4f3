"""Tasks made from real repositories: bugs that the repository's own tests detect."""
