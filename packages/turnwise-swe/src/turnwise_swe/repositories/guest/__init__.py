"""Runs inside the sandbox, beside the code of a repository: starts pytest and reports the outcome of each test."""
