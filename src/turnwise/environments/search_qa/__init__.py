"""The search world: generated knowledge, questions about it, and a search tool over its passages."""
