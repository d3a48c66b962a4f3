"""Tasks made from real repositories: bugs that their own tests find."""
