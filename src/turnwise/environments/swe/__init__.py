"""Repairs of real repositories: instances from a file, sessions on trees, the tools of an agent that codes."""
