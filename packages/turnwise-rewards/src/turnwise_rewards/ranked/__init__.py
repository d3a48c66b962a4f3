"""Attempts at one task, ranked against each other by a judge."""
