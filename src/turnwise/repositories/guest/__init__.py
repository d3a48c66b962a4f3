"""Runs inside the sandbox, beside the code of a repository: starts pytest and reports what became of each test."""
