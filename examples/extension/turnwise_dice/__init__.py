"""Adds an environment, a loss, a credit method, an engine, a command and a section of the report to Turnwise."""
