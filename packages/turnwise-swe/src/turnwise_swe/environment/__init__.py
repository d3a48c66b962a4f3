"""Repairs of real repositories: instances from a file, sessions on trees, and the tools of a coding agent."""
