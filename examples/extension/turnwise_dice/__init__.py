"""Adds an environment, a command and a section of the report to Turnwise."""
